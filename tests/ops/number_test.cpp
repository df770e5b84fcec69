#include <zero/ops/arithmetic.hpp>
#include <zero/ops/number.hpp>

#include <zero/ops/integer_power.hpp>

#include "ops/minimal_number.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace zero::test::number_test {

namespace {

using zero::test::Minimal;

static_assert(ops::Number<float>);
static_assert(!ops::Number<double>, "a functor that computes in double would round elsewhere");
static_assert(!ops::Number<int>);

template <class A, class B>
concept Multiplies = requires(A a, B b) { ops::mul(a, b); };
static_assert(Multiplies<float, Minimal> && Multiplies<Minimal, float> && Multiplies<float, float>
              && Multiplies<double, double>);
static_assert(!Multiplies<double, float> && !Multiplies<double, Minimal>,
              "a double constant would be rounded in a hidden place");

bool same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)
           || (std::isnan(a) && std::isnan(b));
}

TEST_CASE("A fused multiply-add rounds once, even without the instruction", "[ops]") {
    std::mt19937 engine(1);
    std::uniform_int_distribution<std::uint32_t> any;
    int differences = 0;
    auto const check = [&](float a, float b, float c) {
        float const expected = std::fma(a, b, c);
        differences += same(ops::fma(a, b, c), expected) ? 0 : 1;
        differences += same(ops::detail::fma_by_rounding_to_odd(a, b, c), expected) ? 0 : 1;
    };
    for (int i = 0; i < 200'000; ++i) {
        auto const a = std::bit_cast<float>(any(engine));
        auto const b = std::bit_cast<float>(any(engine));
        check(a, b, std::bit_cast<float>(any(engine)));
        float const product = a * b;
        check(a, b, -product); // the rounding error of the product
        check(a, b,
              std::bit_cast<float>(std::bit_cast<std::uint32_t>(product)
                                   ^ (any(engine) & 0x8000000fU))); // near cancellation
        float const tie =
            std::bit_cast<float>((any(engine) & 0x7fffffU) | 0x3f800000U); // 1 <= tie < 2
        float const tiny = std::bit_cast<float>((any(engine) % 60U) << 23U);
        check(tie, tiny, std::bit_cast<float>(any(engine) & 0x81ffffffU)); // subnormal results
        check(tie, 0x1p-24F,
              std::bit_cast<float>((any(engine) & 0x7fffffU) | 0x3f800000U)); // ties and near ties
        check(0x1p-12F, 0x1p-12F + (i % 2 == 0 ? 0x1p-36F : -0x1p-36F), tie);
    }
    CHECK(differences == 0);

    std::vector<float> const special{0.0F,
                                     -0.0F,
                                     1.0F,
                                     -1.0F,
                                     0x1p-149F,
                                     -0x1p-149F,
                                     0x1p-126F,
                                     0x1.fffffep127F,
                                     -0x1.fffffep127F,
                                     std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN()};
    for (float const a : special) {
        for (float const b : special) {
            for (float const c : special) {
                check(a, b, c);
            }
        }
    }
    CHECK(differences == 0);
}

TEST_CASE("A product is never fused with a later sum", "[ops]") {
    // With one rounding the difference would not be zero. If mul() were not opaque, GCC would
    // contract to one rounding where the hardware can.
    float const volatile x = 1.0F + 0x1p-12F;
    float const a = x;
    CHECK(ops::sub(ops::mul(a, a), 1.0F + 0x1p-11F) == 0.0F);
    CHECK(ops::fma(a, a, -(1.0F + 0x1p-11F)) == 0x1p-24F);
    double const volatile y = 1.0 + 0x1p-27;
    double const b = y;
    CHECK(ops::mul(b, b) - (1.0 + 0x1p-26) == 0.0);
}

TEST_CASE("Comparison and selection treat NaN as neither less nor equal", "[ops]") {
    float const nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(ops::less(1.0F, 2.0F));
    CHECK_FALSE(ops::less(2.0F, 2.0F));
    CHECK(ops::less_equal(2.0F, 2.0F));
    CHECK_FALSE(ops::less(nan, 2.0F));
    CHECK_FALSE(ops::less_equal(nan, nan));
    CHECK(ops::select(true, 1.0F, 2.0F) == 1.0F);
    CHECK(ops::select(ops::less(Minimal(1.0F), 0.0F), Minimal(1.0F), 2.0F).value() == 2.0F);
}

TEST_CASE("An integer power is exact for powers of two and within its bound otherwise", "[ops]") {
    CHECK(ops::integer_power(0.5, 0) == 1.0);
    CHECK(ops::integer_power(0.0, 0) == 1.0);
    CHECK(ops::integer_power(0.0, 7) == 0.0);
    CHECK(ops::integer_power(0.5, 1000) == 0x1p-1000);
    CHECK(ops::integer_power(3.0, 20) == 3486784401.0);
    CHECK(ops::integer_power(0.9, std::uint64_t{1} << 62U) == 0.0);
    for (std::uint64_t const exponent : {1U, 2U, 3U, 10U, 999U, 4096U, 12345U}) {
        long double expected = 1.0L;
        for (std::uint64_t i = 0; i < exponent; ++i) {
            expected *= static_cast<long double>(0.999);
        }
        auto const difference = std::fabs(
            static_cast<long double>(ops::integer_power(0.999, exponent)) / expected - 1.0L);
        CHECK(difference <= 2.0L * static_cast<long double>(exponent) * 0x1p-53L);
    }
}

} // namespace

} // namespace zero::test::number_test
