#include <zero/ops/counter_random.hpp>
#include <zero/ops/stochastic_round.hpp>

#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

// The possible results of stochastic rounding and their frequencies.

namespace zero::test::stochastic_round_test {

namespace {

constexpr int draws = 1 << 16;

/// Counts how often a value is rounded to each side. Every other result is wrong.
template <class T>
struct Counts {
    Counts(float value, float lower, float upper) {
        for (std::uint64_t i = 0; i < draws; ++i) {
            float const rounded = to_float(
                ops::round_stochastically<T>(value, ops::random_bits(ops::random_key(9, 4), i)));
            if (rounded == upper) {
                ++up;
            } else if (rounded != lower) {
                ++wrong;
            }
        }
    }
    int up = 0, wrong = 0;
};

/// True if this fraction of all draws rounds up, within five standard deviations of at most 128.
template <class T>
bool is_up_in(double part, float value, float lower, float upper) {
    Counts<T> const counts(value, lower, upper);
    Counts<T> const negative(-value, -lower, -upper);
    double const expected = part * draws;
    return counts.wrong == 0 && negative.wrong == 0 && std::fabs(counts.up - expected) < 640.0
           && std::fabs(negative.up - expected) < 640.0;
}

/// True if the result equals rounding to nearest for all random bits. This holds for infinities,
/// NaN, and values beyond the largest number.
template <class T>
bool is_plain(float value) {
    T const plain = from_float<T>(value);
    return ops::round_stochastically<T>(value, 0U) == plain
           && ops::round_stochastically<T>(value, ~0U) == plain
           && ops::round_stochastically<T>(value, 0x80000000U) == plain;
}

} // namespace

TEST_CASE("The frequency of rounding up is the distance from the lower neighbour") {
    CHECK(is_up_in<bfloat16>(0.25, 1.0F + 0x1p-9F, 1.0F, 1.0F + 0x1p-7F));
    CHECK(is_up_in<bfloat16>(0.5, 1.0F + 0x1p-8F, 1.0F, 1.0F + 0x1p-7F));
    CHECK(is_up_in<bfloat16>(0.875, 2.0F - 0x1p-10F, 2.0F - 0x1p-7F, 2.0F));
    CHECK(is_up_in<bfloat16>(0.75, 0x1.cp-133F, 0x1p-133F, 0x1p-132F)); // subnormal
    CHECK(is_up_in<float16>(0.25, 1.0F + 0x1p-12F, 1.0F, 1.0F + 0x1p-10F));
    CHECK(is_up_in<float16>(0.75, 65472.0F + 24.0F, 65472.0F, 65504.0F));
    CHECK(is_up_in<float16>(0.625, 0x1.ap-24F, 0x1p-24F, 0x1p-23F));
    CHECK(is_up_in<float16>(0.25, 0x1p-26F, 0.0F, 0x1p-24F));
    CHECK(is_up_in<float16>(0.0, 0x1p-100F, 0.0F, 0x1p-24F));
    CHECK_FALSE(is_up_in<bfloat16>(0.25, 1.0F + 0x1p-8F, 1.0F, 1.0F + 0x1p-7F));
}

TEMPLATE_TEST_CASE("A value of the type is unchanged for all random bits", "", bfloat16, float16) {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
        auto const value = TestType::from_bits(static_cast<std::uint16_t>(bits));
        if (to_float(value) == to_float(value)) {
            wrong += ops::round_stochastically<TestType>(to_float(value), 0U) == value ? 0 : 1;
            wrong += ops::round_stochastically<TestType>(to_float(value), ~0U) == value ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("A finite value becomes infinite exactly where rounding to nearest makes it so, and a "
          "NaN stays a NaN") {
    for (float const value :
         {0x1.fep127F, 0x1.fe0002p127F, 0x1.fefffep127F, 0x1.ffp127F, 0x1.fffffep127F,
          std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
          std::bit_cast<float>(0x7f800001U)}) {
        CHECK(is_plain<bfloat16>(value));
        CHECK(is_plain<bfloat16>(-value));
    }
    CHECK_FALSE(is_plain<bfloat16>(0x1.fdp127F)); // between two numbers
    for (float const value :
         {65504.0F, 65504.004F, 65519.996F, 65520.0F, 1e6F, std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
        CHECK(is_plain<float16>(value));
        CHECK(is_plain<float16>(-value));
    }
    CHECK_FALSE(is_plain<float16>(65503.0F));
}

} // namespace zero::test::stochastic_round_test
