#include "ops/codec_conformance.hpp"

#include <zero/ops/block_codecs.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace zero::test::codec_conformance_test {

namespace {

/// A codec of a user: the upper half of each float.
struct UpperHalves {
    static constexpr std::size_t bytes_per_block = 128;

    static void encode(float const (&values)[64], std::uint8_t* to) noexcept {
        for (std::size_t i = 0; i < 64; ++i) {
            bfloat16 const half = from_float<bfloat16>(values[i]);
            std::memcpy(to + 2 * i, &half, 2);
        }
        if (!std::all_of(values, values + 64, [](float value) { return std::isfinite(value); })) {
            for (std::size_t i = 0; i < 64; ++i) {
                bfloat16 const nan = from_float<bfloat16>(std::numeric_limits<float>::quiet_NaN());
                std::memcpy(to + 2 * i, &nan, 2);
            }
        }
    }
    static void decode(std::uint8_t const* from, float (&values)[64]) noexcept {
        for (std::size_t i = 0; i < 64; ++i) {
            bfloat16 half;
            std::memcpy(static_cast<void*>(&half), from + 2 * i, 2);
            values[i] = to_float(half);
        }
    }
    static float error_bound(float largest) noexcept { return largest * 0x1p-8F + 0x1p-134F; }
};

/// Models with one defect each.
struct WithoutSize : UpperHalves {
    static constexpr int bytes_per_block = 128;
};
struct TooLarge : UpperHalves {
    static constexpr std::size_t bytes_per_block = 257;
};
struct WithoutBytes : UpperHalves {
    static constexpr std::size_t bytes_per_block = 0;
};
struct MayThrow : UpperHalves {
    static void encode(float const (&)[64], std::uint8_t*) {}
};
struct WithState : UpperHalves {
    int state = 0;
};
struct WithoutBound : UpperHalves {
    static void error_bound(float) noexcept {}
};
struct DecodesDoubles : UpperHalves {
    static void decode(std::uint8_t const*, double (&)[64]) noexcept {}
};

} // namespace

static_assert(Codec<UpperHalves>);
static_assert(!Codec<WithoutSize> && !Codec<TooLarge> && !Codec<WithoutBytes> && !Codec<MayThrow>);
static_assert(!Codec<WithState> && !Codec<WithoutBound> && !Codec<DecodesDoubles>);
static_assert(Int8Blocks::bytes_per_block == 66 && Int4Blocks::bytes_per_block == 34);

TEST_CASE("Every codec keeps its error bound, zeros, and what is not finite") {
    check_codec<Int8Blocks>();
    check_codec<Int4Blocks>();
    check_codec<UpperHalves>();
}

TEST_CASE(
    "The scale of symmetric codes is the largest magnitude by the levels, rounded to bfloat16") {
    CHECK(ops::code_scale(127.0F, 127.0F) == 1.0F);
    CHECK(ops::code_scale(127.0F * 1.00390625F, 127.0F) == 1.0078125F);
    CHECK(ops::code_scale(std::nextafter(127.0F * 1.00390625F, 0.0F), 127.0F) == 1.0F);
    CHECK(ops::code_scale(7.0F, 7.0F) == 1.0F);
    CHECK(ops::code_scale(0.0F, 127.0F) == 0x1p-126F);
    CHECK(ops::code_scale(0x1p-149F, 7.0F) == 0x1p-126F);
    CHECK(std::isfinite(ops::div(1.0F, ops::code_scale(0x1p-149F, 7.0F))));
    float const most = std::numeric_limits<float>::max();
    CHECK(ops::div(1.0F, ops::code_scale(most, 7.0F)) > 0x1p-126F); // a normal number
    CHECK(std::isnan(ops::code_scale(std::numeric_limits<float>::infinity(), 127.0F)));
}

TEST_CASE("No symmetric code clips, and the largest magnitude gets the largest code") {
    std::size_t clipped = 0;
    for (CodedBlock const& block : blocks_to_code()) {
        float const largest = largest_of(block);
        for (float const levels : {127.0F, 7.0F}) {
            float const inverse = ops::div(1.0F, ops::code_scale(largest, levels));
            auto const code = ops::nearest_integer(ops::mul(largest, inverse));
            clipped += static_cast<float>(code) > levels ? 1 : 0;
            bool const is_used = largest < 0x1p-118F || static_cast<float>(code) == levels;
            clipped += is_used ? 0 : 1;
        }
    }
    CHECK(clipped == 0);
}

TEST_CASE("Codes are rounded to even and laid out as documented") {
    CodedBlock block{};
    block[0] = 127.0F;
    block[1] = -127.0F;
    block[2] = 0.5F;
    block[3] = 1.5F;
    block[4] = -2.5F;
    block[63] = 5.0F;
    auto const bytes = encoded<Int8Blocks>(block);
    CHECK(bytes[0] == 127);
    CHECK(bytes[1] == 129);
    CHECK(bytes[2] == 0);
    CHECK(bytes[3] == 2);
    CHECK(bytes[4] == 254);
    CHECK(bytes[63] == 5);
    CHECK(bytes[64] == 0x80); // 1.0 in bfloat16, the lower byte first
    CHECK(bytes[65] == 0x3f);
    block.fill(0.0F);
    block[0] = 7.0F;
    block[1] = -7.0F;
    block[32] = -1.0F;
    block[63] = 3.0F;
    auto const halves = encoded<Int4Blocks>(block);
    CHECK(halves[0] == 0xf7);
    CHECK(halves[1] == 0x09);
    CHECK(halves[31] == 0x30);
    CHECK(halves[32] == 0x80);
    CHECK(halves[33] == 0x3f);
}

} // namespace zero::test::codec_conformance_test
