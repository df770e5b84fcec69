#include <zero/ops/exact_sum.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace zero::test::exact_sum_test {

namespace {

using zero::ops::Inspection;

/// Numbers of all magnitudes: multiples of 2^-298 below 2^268.
std::vector<double> numbers(std::size_t count, int lowest, int highest) {
    std::mt19937_64 engine(7);
    std::uniform_int_distribution<int> exponent(lowest, highest);
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
        double const significand = 1.0 + static_cast<double>(engine() >> 12U) * 0x1p-52;
        int const e = exponent(engine);
        // clears the bits below the grid
        result.push_back(e < 52 - 298
                             ? std::ldexp(std::floor(std::ldexp(significand, e + 298)), -298)
                             : std::ldexp(significand, e));
    }
    return result;
}

bool same(Inspection const& a, Inspection const& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_CASE("The exact sum has the same bits in every order and for every cut", "[ops][norm]") {
    auto values = numbers(20'000, -298, 267);
    Inspection whole;
    for (double const value : values) {
        whole.add(value);
    }
    std::mt19937 engine(8);
    for (std::size_t const ranks : {1U, 2U, 3U, 8U}) {
        std::shuffle(values.begin(), values.end(), engine);
        std::vector<Inspection> parts(ranks);
        for (std::size_t i = 0; i < values.size(); ++i) {
            parts[(i * i) % ranks].add(values[i]);
        }
        Inspection sum;
        for (auto const& part : parts) {
            sum.merge(part);
        }
        CHECK(same(sum, whole));
        CHECK(sum.sum_of_squares() == whole.sum_of_squares());
    }
}

TEST_CASE("The value depends only on the exact sum, not on the order of additions", "[ops][norm]") {
    Inspection halves;
    Inspection whole;
    for (double const value : numbers(1000, -200, 200)) {
        halves.add(value / 2);
        halves.add(value / 2);
        whole.add(value);
    }
    CHECK_FALSE(same(halves, whole));
    CHECK(halves.sum_of_squares() == whole.sum_of_squares());
}

TEST_CASE("The value of one number is that number, from the smallest to the largest",
          "[ops][norm]") {
    for (double const number :
         {0.0, 0x1p-298, 3 * 0x1p-298, 0x1p-297, 0x1.fffffffffffffp-246, 0x1p-246, 1.0,
          0x1.fffffffffffffp0, 0x1.123456789abcdp100, 64 * 0x1.fffffcp255, 0x1.fffffffffffffp267}) {
        Inspection sum;
        sum.add(number);
        CAPTURE(number);
        CHECK(sum.sum_of_squares() == number);
    }
    for (double const number : numbers(10'000, -298, 267)) {
        Inspection sum;
        sum.add(number);
        REQUIRE(sum.sum_of_squares() == number);
    }
}

TEST_CASE("The value is within 1e-15 of the sum", "[ops][norm]") {
    for (int const spread : {1, 10, 40}) {
        auto const values = numbers(100'000, -spread, spread);
        Inspection sum;
        long double expected = 0.0L;
        for (double const value : values) {
            sum.add(value);
            expected += static_cast<long double>(value);
        }
        CHECK(std::fabs(static_cast<double>(
                  static_cast<long double>(sum.sum_of_squares()) / expected - 1.0L))
              < 1e-15);
    }
}

TEST_CASE("A small number is not lost beside a large one", "[ops][norm]") {
    Inspection sum;
    sum.add(0x1p267);
    sum.add(0x1p-298);
    Inspection large;
    large.add(0x1p267);
    for (std::size_t i = 0; i < Inspection::count; ++i) {
        sum.sums[i] -= large.sums[i];
    }
    CHECK(sum.sum_of_squares() == 0x1p-298);
}

TEST_CASE("Digits do not overflow with 2^35 writes", "[ops][norm]") {
    // A write adds at most 2^28 - 1 to a digit. Adds 2^35 of the widest at once, as a reduction
    // over ranks could.
    Inspection sum;
    for (std::size_t i = 0; i < 20; ++i) {
        sum.sums[i] = ((std::int64_t{1} << 28U) - 1) * (std::int64_t{1} << 34U) * 2;
        CHECK(sum.sums[i] > 0);
    }
    // 2^35 * (2^560 - 1) * 2^-298, rounded to nearest
    CHECK(sum.sum_of_squares() == 0x1p297);
}

TEST_CASE("Carrying changes no sum and leaves equal digits for equal sums", "[ops][norm]") {
    Inspection halves;
    Inspection whole;
    for (double const value : numbers(1000, -200, 200)) {
        halves.add(value / 2);
        halves.add(value / 2);
        whole.add(value);
    }
    double const before = whole.sum();
    CHECK_FALSE(same(halves, whole));
    halves.carry();
    whole.carry();
    CHECK(same(halves, whole));
    CHECK(whole.sum() == before);
    for (std::size_t i = 0; i + 1 < Inspection::digits; ++i) {
        CHECK(whole.sums[i] >> Inspection::digit_bits == 0);
    }
    whole.add(0x1p-200); // a bit of one of its digits
    whole.carry();
    CHECK_FALSE(same(halves, whole));
}

TEST_CASE("Non-finite elements are counted, and the index of the first one is kept",
          "[ops][norm]") {
    Inspection first;
    CHECK(first.non_finite_count() == 0);
    CHECK(first.first_non_finite == Inspection::none);
    first.add_non_finite(70);
    Inspection second;
    second.add_non_finite(12);
    second.add_non_finite(13);
    second.add(2.0);
    first.merge(second);
    CHECK(first.non_finite_count() == 3);
    CHECK(first.first_non_finite == 12);
    CHECK(first.sum_of_squares() == 2.0);
    first.clear();
    CHECK(same(first, Inspection{}));
}

} // namespace

} // namespace zero::test::exact_sum_test
