#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace zero::test::norm_kernel_test {

namespace {

using ops::NormSum;

template <class T>
std::vector<T> wide_range(std::size_t n) {
    std::mt19937 engine(9);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> exponent(-12, 12);
    std::vector<T> values(n);
    for (auto& value : values) {
        value = from_float<T>(std::ldexp(normal(engine), exponent(engine)));
    }
    return values;
}

template <class T>
double norm_of(NormKind kind, std::vector<T> const& values) {
    NormSum sum;
    host::add_to_norm(kind, values.data(), values.size(), 0, sum);
    return sum.value(kind, 1.0);
}

TEMPLATE_TEST_CASE("Norms are within 1e-14 of long-double sums at every length",
                   "[host][kernel][norm]", float, bfloat16, float16) {
    int wrong = 0;
    for (std::size_t const n : {0U, 1U, 7U, 8U, 63U, 64U, 65U, 1000U, 100'003U}) {
        auto const values = wide_range<TestType>(n);
        long double sum = 0.0L;
        long double squares = 0.0L;
        long double largest = 0.0L;
        for (auto const value : values) {
            long double const x = std::fabs(static_cast<long double>(to_float(value)));
            sum += x;
            squares += x * x;
            largest = std::max(largest, x);
        }
        auto const is_near = [](double found, long double expected) {
            return std::fabs(static_cast<long double>(found) - expected) <= 1e-14L * expected;
        };
        wrong += is_near(norm_of(NormKind::l1, values), sum) ? 0 : 1;
        wrong += is_near(norm_of(NormKind::l2, values), std::sqrt(squares)) ? 0 : 1;
        wrong += static_cast<long double>(norm_of(NormKind::infinity, values)) == largest ? 0 : 1;
        wrong += n > 1 && is_near(norm_of(NormKind::l1, values), sum - largest)
                     ? 1
                     : 0; // without one element the norm differs
    }
    CHECK(wrong == 0);
}

TEST_CASE("Any cut gives the same norms", "[host][kernel][norm]") {
    auto const values = wide_range<float>(64 * 1024);
    for (auto const kind : {NormKind::l1, NormKind::l2, NormKind::infinity}) {
        std::mt19937 engine(6);
        NormSum cut;
        for (std::size_t begin = 0; begin < values.size();) {
            std::size_t const n = std::min<std::size_t>(values.size() - begin, 1 + engine() % 400);
            host::add_to_norm(kind, values.data() + begin, n, static_cast<std::int64_t>(begin),
                              cut);
            begin += n;
        }
        CHECK(cut.value(kind, 1.0) == norm_of(kind, values));
    }
}

TEST_CASE("Non-finite elements are counted once at every position", "[host][kernel][norm]") {
    for (float const bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
        for (std::size_t const place : {0U, 63U, 64U, 255U, 998U}) {
            std::vector<float> values(999, 0.5F);
            values[place] = bad;
            NormSum sum;
            host::add_to_norm(NormKind::l1, values.data(), values.size(), 100, sum);
            CHECK(sum.exact.non_finite_count() == 1);
            CHECK(sum.exact.first_non_finite == 100 + static_cast<std::int64_t>(place));
            CHECK(sum.exact.sum() == 499.0);
            for (auto const kind : {NormKind::l1, NormKind::l2, NormKind::infinity}) {
                CHECK(norm_of(kind, values) == std::numeric_limits<double>::infinity());
            }
        }
    }
}

TEST_CASE("The largest floats do not overflow an l1 norm, and subnormal floats are not lost",
          "[host][kernel][norm]") {
    CHECK(norm_of(NormKind::l1, std::vector<float>(1000, -0x1p127F)) == 1000 * 0x1p127);
    CHECK(norm_of(NormKind::l1, std::vector<float>(1000, 0x1p-149F)) == 1000 * 0x1p-149);
    std::vector<float> mixed(128, 0.0F);
    mixed[0] = 0x1p60F;
    mixed[64] = 0x1p-149F;
    NormSum sum;
    host::add_to_norm(NormKind::l1, mixed.data(), mixed.size(), 0, sum);
    NormSum large;
    host::add_to_norm(NormKind::l1, mixed.data(), 1, 0, large);
    for (std::size_t digit = 0; digit < ops::Inspection::count; ++digit) {
        sum.exact.sums[digit] -= large.exact.sums[digit];
    }
    CHECK(sum.value(NormKind::l1, 1.0) == 0x1p-149);
}

} // namespace

} // namespace zero::test::norm_kernel_test
