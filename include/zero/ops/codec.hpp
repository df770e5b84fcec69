#pragma once

#include "../core/convert.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "arithmetic.hpp"
#include "block_scale.hpp"
#include "host_device.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::ops {

/// @brief Returns the scale of a block of symmetric codes: `largest` / `levels`, rounded up to
/// bfloat16, at least 2^-126, so that its inverse is a normal float. NaN if `largest` is infinite
/// or NaN.
///
/// No quotient of a value and the scale rounds to more than `levels`.
ZERO_HOST_DEVICE inline float code_scale(float largest, float levels) noexcept {
    std::uint32_t const quotient = std::bit_cast<std::uint32_t>(div(largest, levels));
    std::uint32_t const scale = (quotient + 0xffffU) & 0xffff0000U;
    bool const is_finite = std::bit_cast<std::uint32_t>(largest) < 0x7f800000U;
    std::uint32_t const at_least = scale < 0x00800000U ? 0x00800000U : scale;
    return std::bit_cast<float>(is_finite ? at_least : 0x7fc00000U);
}

/// @brief Returns the integer nearest to a product, even if two are as near. The product is at most
/// 2^22 in magnitude.
ZERO_HOST_DEVICE inline std::int32_t nearest_integer(float product) noexcept {
    float const shifted = add(product, 12582912.0F); // 1.5 * 2^23: its last bit is worth 1
    return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U);
}

/// @brief The larger of two magnitudes as bits, which are ordered as magnitudes are; NaN is above
/// infinity.
ZERO_HOST_DEVICE constexpr std::uint32_t larger_magnitude_bits(std::uint32_t largest,
                                                               float value) noexcept {
    std::uint32_t const magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
    return largest < magnitude ? magnitude : largest;
}

} // namespace ZERO_NAMESPACE::ops

/// The requirements of `Codec`, one concept each. The concept and its messages use them.
namespace ZERO_NAMESPACE::detail {

/// @brief Elements of a block that a codec encodes at once.
inline constexpr std::size_t coded_elements = ops::scaled_block_elements;

template <class C>
concept CodecHasSize = requires {
    { C::bytes_per_block } -> std::same_as<std::size_t const&>;
};

template <class C>
concept CodecSizeFits =
    C::bytes_per_block >= 1 && C::bytes_per_block <= coded_elements * sizeof(float);

template <class C>
concept CodecHasEncode = requires(float const (&values)[coded_elements], std::uint8_t* to) {
    { C::encode(values, to) } noexcept -> std::same_as<void>;
};

template <class C>
concept CodecHasDecode = requires(std::uint8_t const* from, float (&values)[coded_elements]) {
    { C::decode(from, values) } noexcept -> std::same_as<void>;
};

template <class C>
concept CodecHasErrorBound = requires(float largest) {
    { C::error_bound(largest) } noexcept -> std::same_as<float>;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A way to send a block of 64 elements of one parameter in fewer bytes.
///
/// - `static constexpr std::size_t bytes_per_block`: 1 to 256.
/// - `static void encode(float const (&values)[64], std::uint8_t* to) noexcept` writes that many
/// bytes, at any address. Elements behind the end of a parameter are 0.
/// - `static void decode(std::uint8_t const* from, float (&values)[64]) noexcept`.
/// - `static float error_bound(float largest) noexcept`: an upper bound of |x - decode(encode(x))|
/// in a block whose largest magnitude is `largest`.
///
/// Beyond this syntax a model guarantees: it is pure; every bit of the bytes follows from the
/// values; a block of zeros decodes to zeros; all values of a block with an infinity or a NaN
/// decode to NaN or infinity, so that overflow is found. On a device mark the functions
/// `ZERO_HOST_DEVICE`, and use the functions of `ops/arithmetic.hpp`.
template <class C>
concept Codec =
    std::is_empty_v<C> && detail::CodecHasSize<C> && detail::CodecSizeFits<C>
    && detail::CodecHasEncode<C> && detail::CodecHasDecode<C> && detail::CodecHasErrorBound<C>;

/// @brief Reports each reason why `C` is not a `Codec` as one error.
template <class C>
consteval bool diagnose_codec() {
    static_assert(detail::CodecHasSize<C>,
                  "zero: a Codec needs 'static constexpr std::size_t bytes_per_block' (bytes of "
                  "64 elements). To send values as they are, write zero::Plain.");
    if constexpr (detail::CodecHasSize<C>) {
        static_assert(detail::CodecSizeFits<C>,
                      "zero: 'bytes_per_block' of a Codec is from 1 to 256, the bytes of 64 "
                      "floats.");
        static_assert(std::is_empty_v<C>,
                      "zero: a Codec is an empty type whose functions are static.");
        static_assert(detail::CodecHasEncode<C>,
                      "zero: a Codec needs 'static void encode(float const (&values)[64], "
                      "std::uint8_t* to) noexcept'.");
        static_assert(detail::CodecHasDecode<C>,
                      "zero: a Codec needs 'static void decode(std::uint8_t const* from, float "
                      "(&values)[64]) noexcept'.");
        static_assert(detail::CodecHasErrorBound<C>,
                      "zero: a Codec needs 'static float error_bound(float largest) noexcept'.");
    }
    return Codec<C>;
}

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Codes of -levels to levels in `bits` bits each, and one bfloat16 scale behind them.
///
/// With 8 bits, byte i holds the code of element i. With 4 bits, byte i holds the codes of elements
/// i, in the lower half, and i + 32. Negative codes are two's complements.
template <int bits>
struct SymmetricBlocks {
    static_assert(bits == 8 || bits == 4);
    static constexpr int code_bits = bits;
    static constexpr float levels = bits == 8 ? 127.0F : 7.0F;
    static constexpr std::size_t code_bytes = coded_elements * bits / 8;
    static constexpr std::size_t bytes_per_block = code_bytes + sizeof(bfloat16);

    /// @brief Half a scale, and 2^-16 of one for the rounded inverse.
    ZERO_HOST_DEVICE static float error_bound(float largest) noexcept {
        return ops::mul(ops::code_scale(largest, levels), 0x1.0002p-1F);
    }

    ZERO_HOST_DEVICE static void put_scale(float scale, std::uint8_t* to) noexcept {
        std::uint32_t const word = std::bit_cast<std::uint32_t>(scale);
        to[code_bytes] = static_cast<std::uint8_t>(word >> 16U & 0xffU);
        to[code_bytes + 1] = static_cast<std::uint8_t>(word >> 24U);
    }

    [[nodiscard]] ZERO_HOST_DEVICE static float scale_of(std::uint8_t const* from) noexcept {
        return std::bit_cast<float>(std::uint32_t{from[code_bytes]} << 16U
                                    | std::uint32_t{from[code_bytes + 1]} << 24U);
    }

    ZERO_HOST_DEVICE static void encode(float const (&values)[coded_elements],
                                        std::uint8_t* to) noexcept {
        std::uint32_t largest = 0;
        for (float const value : values) {
            largest = ops::larger_magnitude_bits(largest, value);
        }
        float const scale = ops::code_scale(std::bit_cast<float>(largest), levels);
        bool const is_finite = largest < 0x7f800000U;
        float const inverse = ops::div(1.0F, scale);
        auto const code = [&](float value) {
            return is_finite ? ops::nearest_integer(ops::mul(value, inverse)) : 0;
        };
        for (std::size_t i = 0; i < code_bytes; ++i) {
            auto byte = static_cast<std::uint32_t>(code(values[i]));
            if constexpr (bits == 4) {
                byte =
                    (byte & 0xfU) | static_cast<std::uint32_t>(code(values[i + code_bytes])) << 4U;
            }
            to[i] = static_cast<std::uint8_t>(byte & 0xffU);
        }
        put_scale(scale, to);
    }

    ZERO_HOST_DEVICE static void decode(std::uint8_t const* from,
                                        float (&values)[coded_elements]) noexcept {
        float const scale = scale_of(from);
        auto const value = [&](std::uint32_t code, unsigned unused) { // in its lowest bits
            auto const number = static_cast<std::int32_t>(code << unused) >> unused;
            return ops::mul(static_cast<float>(number), scale);
        };
        for (std::size_t i = 0; i < code_bytes; ++i) {
            values[i] = value(from[i], 32U - bits);
            if constexpr (bits == 4) {
                values[i + code_bytes] = value(std::uint32_t{from[i]} >> 4U, 32U - bits);
            }
        }
    }
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Sends 64 elements as codes of -127 to 127 and one bfloat16 scale, in 66 bytes.
///
/// The scale is the largest magnitude / 127, rounded up, and the error at most half of it. Decoding
/// is exact in float. A magnitude within 1/128 of the largest finite number of a 16-bit type may
/// decode to infinity. A block with an infinity or a NaN decodes to NaN.
struct Int8Blocks : detail::SymmetricBlocks<8> {};

/// @brief The same with codes of -7 to 7, in 34 bytes.
struct Int4Blocks : detail::SymmetricBlocks<4> {};

static_assert(Codec<Int8Blocks> && Codec<Int4Blocks>);

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the backends have loops for a codec. They call the functions of others.
template <class C>
inline constexpr bool is_symmetric = std::is_same_v<C, Int8Blocks> || std::is_same_v<C, Int4Blocks>;

} // namespace ZERO_NAMESPACE::detail
