#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"
#include "arithmetic.hpp"
#include "codec.hpp"
#include "symmetric_codes.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Codes of -levels to levels in `bits` bits each, and one bfloat16 scale behind them, for
/// `ops::scaled_block_elements` (block_scale.hpp).
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
        std::uint32_t const half = __builtin_bit_cast(std::uint32_t, scale) >> 16U;
        to[code_bytes] = static_cast<std::uint8_t>(half & 0xffU);
        to[code_bytes + 1] = static_cast<std::uint8_t>(half >> 8U);
    }

    [[nodiscard]] ZERO_HOST_DEVICE static float scale_of(std::uint8_t const* from) noexcept {
        // compilers make one load of it
        return __builtin_bit_cast(
            float, (std::uint32_t{from[code_bytes]} | std::uint32_t{from[code_bytes + 1]} << 8U)
                       << 16U);
    }

    ZERO_HOST_DEVICE static void encode(float const (&values)[coded_elements],
                                        std::uint8_t* to) noexcept {
        std::uint32_t largest = 0;
        for (float const value : values) {
            largest = ops::larger_magnitude_bits(largest, value);
        }
        float const scale = ops::code_scale(__builtin_bit_cast(float, largest), levels);
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
/// The scale is the largest magnitude / 127, rounded, and the error at most half of it. Decoding is
/// exact in float, and encoding what was decoded gives the same codes. A magnitude within 1/128 of
/// the largest finite number of a 16-bit type may decode to infinity. A block with an infinity or a
/// NaN decodes to NaN.
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
