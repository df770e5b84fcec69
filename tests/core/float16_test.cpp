#include "support/catch.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace zero::test::float16_test {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

constexpr std::uint16_t half(float value) {
    return from_float<float16>(value).bits;
}
constexpr std::uint16_t brain(float value) {
    return from_float<bfloat16>(value).bits;
}
constexpr float from_half(std::uint16_t bits) {
    return to_float(float16::from_bits(bits));
}
constexpr float from_brain(std::uint16_t bits) {
    return to_float(bfloat16::from_bits(bits));
}
constexpr float of_bits(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

} // namespace

TEST_CASE("Values of float16 at the edges of its range follow IEEE 754") {
    STATIC_REQUIRE(from_half(0x0001) == 0x1.0p-24F); // smallest subnormal
    STATIC_REQUIRE(from_half(0x03ff) == 0x1.ff8p-15F);
    STATIC_REQUIRE(from_half(0x0400) == 0x1.0p-14F); // smallest normal
    STATIC_REQUIRE(from_half(0x3c00) == 1.0F);
    STATIC_REQUIRE(from_half(0x3c01) == 1.0009765625F);
    STATIC_REQUIRE(from_half(0x7bff) == 65504.0F);
    STATIC_REQUIRE(from_half(0x7c00) == infinity);
    STATIC_REQUIRE(from_half(0xfc00) == -infinity);
    STATIC_REQUIRE(std::bit_cast<std::uint32_t>(from_half(0x8000)) == 0x80000000U);
    CHECK(std::isnan(from_half(0x7c01)));
    CHECK(std::isnan(from_half(0xfe00)));
}

TEST_CASE("Floats are rounded to float16 to nearest, ties to even") {
    STATIC_REQUIRE(half(1.0F) == 0x3c00);
    STATIC_REQUIRE(half(-2.0F) == 0xc000);
    STATIC_REQUIRE(half(1.0F + 0x1.0p-11F) == 0x3c00);              // tie, down to even
    STATIC_REQUIRE(half(1.0F + 0x1.0p-11F + 0x1.0p-20F) == 0x3c01); // above the tie
    STATIC_REQUIRE(half(1.0F + 3 * 0x1.0p-11F) == 0x3c02);          // tie, up to even
    STATIC_REQUIRE(half(0x1.0p-25F) == 0x0000); // tie between 0 and the smallest subnormal
    STATIC_REQUIRE(half(0x1.000002p-25F) == 0x0001);
    STATIC_REQUIRE(half(3 * 0x1.0p-25F) == 0x0002);
    STATIC_REQUIRE(half(0x1.ffcp-15F) == 0x0400); // tie between subnormal and normal
    STATIC_REQUIRE(half(-0.0F) == 0x8000);
    STATIC_REQUIRE(half(std::numeric_limits<float>::denorm_min()) == 0x0000);
}

TEST_CASE("Floats too large for float16 become infinite from 65520 on") {
    STATIC_REQUIRE(half(65504.0F) == 0x7bff);
    STATIC_REQUIRE(half(65519.996F) == 0x7bff);
    STATIC_REQUIRE(half(65520.0F) == 0x7c00);
    STATIC_REQUIRE(half(-65520.0F) == 0xfc00);
    STATIC_REQUIRE(half(std::numeric_limits<float>::max()) == 0x7c00);
    STATIC_REQUIRE(half(infinity) == 0x7c00);
    STATIC_REQUIRE(half(-infinity) == 0xfc00);
}

TEST_CASE("A bfloat16 is the upper half of a float") {
    STATIC_REQUIRE(from_brain(0x3f80) == 1.0F);
    STATIC_REQUIRE(from_brain(0x7f7f) == 0x1.fep127F); // largest
    STATIC_REQUIRE(from_brain(0x0080) == 0x1.0p-126F); // smallest normal
    STATIC_REQUIRE(from_brain(0x0001) == 0x1.0p-133F); // smallest subnormal
    STATIC_REQUIRE(from_brain(0xff80) == -infinity);
    CHECK(std::isnan(from_brain(0x7f81)));
}

TEST_CASE("Floats are rounded to bfloat16 to nearest, ties to even, and overflow to infinity") {
    STATIC_REQUIRE(brain(of_bits(0x3f808000U)) == 0x3f80); // tie, down to even
    STATIC_REQUIRE(brain(of_bits(0x3f808001U)) == 0x3f81);
    STATIC_REQUIRE(brain(of_bits(0x3f818000U)) == 0x3f82); // tie, up to even
    STATIC_REQUIRE(brain(of_bits(0x3f817fffU)) == 0x3f81);
    STATIC_REQUIRE(brain(std::numeric_limits<float>::max()) == 0x7f80);
    STATIC_REQUIRE(brain(of_bits(0x7f7f7fffU)) == 0x7f7f);
    STATIC_REQUIRE(brain(-infinity) == 0xff80);
    STATIC_REQUIRE(brain(-0.0F) == 0x8000);
    STATIC_REQUIRE(brain(of_bits(0x00008000U)) == 0x0000); // tie with zero
    STATIC_REQUIRE(brain(of_bits(0x00008001U)) == 0x0001);
}

TEST_CASE(
    "A NaN becomes a quiet NaN with the same sign, also where rounding would carry into infinity") {
    STATIC_REQUIRE(brain(of_bits(0x7fffffffU)) == 0x7fff);
    STATIC_REQUIRE(brain(of_bits(0xffffffffU)) == 0xffff);
    STATIC_REQUIRE(brain(of_bits(0x7f800001U)) == 0x7fc0); // the payload is in the lower half
    STATIC_REQUIRE(half(of_bits(0x7fffffffU)) == 0x7fff);
    STATIC_REQUIRE(half(of_bits(0xff800001U)) == 0xfe00);
}

TEMPLATE_TEST_CASE("A storage type is made of bits only by name, and of a number only by rounding",
                   "", bfloat16, float16) {
    STATIC_REQUIRE_FALSE(std::is_constructible_v<TestType, int>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<TestType, std::uint16_t>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<TestType, bool>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<TestType, float>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<TestType, double>);
    STATIC_REQUIRE(TestType::from_bits(0x1234).bits == 0x1234);
    STATIC_REQUIRE(TestType().bits == 0);
    STATIC_REQUIRE(static_cast<float>(from_float<TestType>(-1.5F)) == -1.5F);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<TestType, float>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<int, TestType>);
    STATIC_REQUIRE_FALSE(
        std::is_constructible_v<
            TestType, std::conditional_t<std::is_same_v<TestType, float16>, bfloat16, float16>>);
    STATIC_REQUIRE(std::is_trivially_copyable_v<TestType>);
}

TEST_CASE("Storage types compare bits, and only conversions to a wider type are exact") {
    STATIC_REQUIRE(float16::from_bits(0x7e00) == float16::from_bits(0x7e00)); // a NaN
    STATIC_REQUIRE_FALSE(bfloat16::from_bits(0x8000) == bfloat16::from_bits(0x0000));
    STATIC_REQUIRE(is_exact_conversion<float, bfloat16>);
    STATIC_REQUIRE(is_exact_conversion<bfloat16, bfloat16>);
    STATIC_REQUIRE_FALSE(is_exact_conversion<bfloat16, float>);
    STATIC_REQUIRE_FALSE(is_exact_conversion<float16, bfloat16>);
    STATIC_REQUIRE(from_float<float>(0.1F) == 0.1F);
    STATIC_REQUIRE(sizeof(float16) == 2);
    STATIC_REQUIRE(sizeof(bfloat16) == 2);
    STATIC_REQUIRE(StorageType<float16>);
    STATIC_REQUIRE_FALSE(StorageType<double>);
}

} // namespace zero::test::float16_test
