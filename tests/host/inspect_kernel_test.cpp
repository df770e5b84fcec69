#include "host/inspection.hpp"
#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace zero::test::inspect_kernel_test {

namespace {

using ops::Inspection;

TEMPLATE_TEST_CASE("The inspection gives the exact sum of its definition with every instruction "
                   "set, length and alignment",
                   "[host][kernel][norm]", float, bfloat16, float16) {
    auto const values = kernel_inputs<TestType>(2000, 1);
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        int wrong = 0;
        for (std::size_t n = 0; n <= 600; ++n) {
            auto const* const begin = values.data() + n % 9;
            Inspection result;
            host::inspect(begin, n, 1000, result);
            wrong += same(result, by_definition(begin, n, 1000)) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

template <class T>
bool same_as_defined(std::vector<T> const& values) {
    Inspection result;
    host::inspect(values.data(), values.size(), 70, result);
    return same(result, by_definition(values.data(), values.size(), 70));
}

template <class T = float>
std::vector<T> wide_range(std::size_t n, int spread) {
    std::mt19937 engine(4);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> exponent(-spread, spread);
    std::vector<T> values(n);
    for (auto& value : values) {
        value = from_float<T>(std::ldexp(normal(engine), exponent(engine)));
    }
    return values;
}

TEST_CASE("Long ranges also give the exact sum of the definition", "[host][kernel][norm]") {
    auto const values = wide_range(300'001, 60);
    auto const expected = by_definition(values.data(), values.size(), 0);
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (scope.is_supported()) {
            Inspection result;
            host::inspect(values.data(), values.size(), 0, result);
            CHECK(same(result, expected));
        }
    }
}

TEMPLATE_TEST_CASE(
    "Any cut and any order of the pieces give the same sum, with every instruction set",
    "[host][kernel][norm]", float, bfloat16, float16) {
    for (int const spread : {0, 10, 100}) {
        auto const values = wide_range<TestType>(20'011, spread);
        Inspection const whole = by_definition(values.data(), values.size(), 0);
        for (auto const set : instruction_sets) {
            WithInstructionSet const scope(set);
            std::mt19937 engine(6);
            int wrong = 0;
            for (std::size_t const longest : {1U, 3U, 64U, 700U, 3000U}) {
                std::vector<Inspection> parts(7);
                for (std::size_t begin = 0; begin < values.size();) {
                    std::size_t const n =
                        std::min<std::size_t>(values.size() - begin, 1 + engine() % longest);
                    host::inspect(values.data() + begin, n, static_cast<std::int64_t>(begin),
                                  parts[engine() % parts.size()]);
                    begin += n;
                }
                Inspection sum;
                for (auto const& part : parts) {
                    sum.merge(part);
                }
                wrong += same(sum, whole) ? 0 : 1;
            }
            CHECK(wrong == 0);
        }
    }
    auto other = wide_range<TestType>(20'011, 0);
    Inspection const before = by_definition(other.data(), other.size(), 0);
    other[777] = from_float<TestType>(to_float(other[777]) * 1.0625F);
    CHECK_FALSE(same(by_definition(other.data(), other.size(), 0), before));
}

TEMPLATE_TEST_CASE(
    "Every exponent gives the sum of the definition, alone and beside one that is far "
    "smaller or larger",
    "[host][kernel][norm]", float, float16) {
    std::mt19937 engine(11);
    auto const with_exponent = [&](unsigned exponent) {
        std::uint32_t const bits = (engine() & 0x807fffffU) | exponent << 23U;
        auto const value = from_float<TestType>(std::bit_cast<float>(bits));
        return std::isfinite(to_float(value)) || exponent == 255 ? value : TestType{};
    };
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        int wrong = 0;
        for (unsigned exponent = 0; exponent < 256; ++exponent) {
            std::vector<TestType> values(1024 + 16 + 5);
            for (auto& value : values) {
                value = with_exponent(exponent);
            }
            wrong += same_as_defined(values) ? 0 : 1;
            for (unsigned gap = 1; gap <= 60; gap += gap < 30 ? 1 : 7) {
                values[engine() % values.size()] =
                    with_exponent(exponent > gap ? exponent - gap : 0);
                wrong += same_as_defined(values) ? 0 : 1;
            }
            values[engine() % values.size()] = TestType{};
            wrong += same_as_defined(values) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("Ranges whose magnitudes change after each thousand elements give the exact sum",
          "[host][kernel][norm]") {
    std::mt19937 engine(12);
    std::normal_distribution<float> normal;
    std::vector<float> values(100'000);
    int scale = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        scale = i % 1000 == 0 ? static_cast<int>(engine() % 200U) - 100 : scale;
        values[i] = engine() % 10U == 0 ? 0.0F : std::ldexp(normal(engine), scale);
    }
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        CHECK(same_as_defined(values));
    }
}

TEST_CASE("The sum of squares is within 1e-14 of a long-double sum", "[host][kernel][norm]") {
    for (int const spread : {0, 20, 60}) {
        auto const values = wide_range(1'000'003, spread);
        long double expected = 0.0L;
        for (float const x : values) {
            expected += static_cast<long double>(x) * static_cast<long double>(x);
        }
        Inspection result;
        host::inspect(values.data(), values.size(), 0, result);
        CHECK(std::fabs(static_cast<double>(
                  static_cast<long double>(result.sum_of_squares()) / expected - 1.0L))
              < 1e-14);
    }
}

TEST_CASE("Zeros, subnormals and the largest floats are ordinary", "[host][kernel][norm]") {
    std::size_t const n = GENERATE(1U, 63U, 64U, 65U, 1000U, 100'000U);
    auto const sum_of = [n](float x) {
        std::vector<float> const values(n, x);
        Inspection result;
        host::inspect(values.data(), n, 0, result);
        CHECK(result.non_finite_count() == 0);
        CHECK(result.first_non_finite == Inspection::none);
        return result.sum_of_squares();
    };
    auto const count = static_cast<double>(n);
    CHECK(sum_of(0.0F) == 0.0);
    CHECK(sum_of(-0.0F) == 0.0);
    CHECK(sum_of(0x1p-149F) == count * 0x1p-298);
    CHECK(sum_of(-0x1p-140F) == count * 0x1p-280);
    CHECK(sum_of(0x1p127F) == count * 0x1p254);
    double const largest = 0x1.fffffep127;
    CHECK(std::fabs(sum_of(0x1.fffffep127F) / (count * largest * largest) - 1.0) < 1e-15);
}

TEST_CASE("One infinity among a million elements is counted, named and not added",
          "[host][kernel][norm]") {
    float const bad =
        GENERATE(std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                 std::numeric_limits<float>::quiet_NaN());
    std::size_t const place = GENERATE(0U, 63U, 64U, 255U, 256U, 654'321U, 999'999U);
    std::vector<float> values(1'000'000, 0.5F);
    values[place] = bad;
    Inspection result;
    host::inspect(values.data(), values.size(), 5'000'000'000, result);
    CHECK(result.non_finite_count() == 1);
    CHECK(result.first_non_finite == 5'000'000'000 + static_cast<std::int64_t>(place));
    CHECK(result.sum_of_squares() == 999'999 * 0.25);
}

TEST_CASE("All elements may be non-finite", "[host][kernel][norm]") {
    std::vector<float16> const values(777, float16::from_bits(0x7c00));
    Inspection result;
    host::inspect(values.data(), values.size(), 3, result);
    CHECK(result.non_finite_count() == 777);
    CHECK(result.first_non_finite == 3);
    CHECK(result.sum_of_squares() == 0.0);
}

} // namespace

} // namespace zero::test::inspect_kernel_test
