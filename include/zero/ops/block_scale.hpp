#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::ops {

/// @brief Number of elements that share a scale.
inline constexpr std::size_t scaled_block_elements = 64;

/// @brief Returns the scale of a block of float16 numbers. A float is divided by it before it is
/// stored, and multiplied by it after it is loaded.
///
/// The scale s is the power of two with 2^14 <= largest / s < 2^15, but at least 2^-126, so that
/// its inverse is a normal float. It is 1 if `largest` is 0. No quotient below 2^15 overflows
/// float16 when rounded. Division and multiplication are exact, except for quotients below the
/// smallest positive float16. A magnitude of 2^128 - 2^116 or more rounds to 2^128 and becomes
/// infinite when loaded, as in bfloat16; rounded stochastically, one above 2^128 - 2^117 may.
/// @param largest the largest finite magnitude of the block
ZERO_HOST_DEVICE constexpr float block_scale(float largest) noexcept {
    std::uint32_t const exponent =
        __builtin_bit_cast(std::uint32_t, largest) >> 23U; // biased by 127
    std::uint32_t const scale = exponent > 15U ? exponent - 14U : 1U;
    return largest == 0.0F ? 1.0F : __builtin_bit_cast(float, scale << 23U);
}

/// @brief 1 / scale, exactly.
ZERO_HOST_DEVICE constexpr float inverse_block_scale(float scale) noexcept {
    return __builtin_bit_cast(float, (254U << 23U) - __builtin_bit_cast(std::uint32_t, scale));
}

/// @brief The magnitude of a value, or 0 if it is infinite or NaN.
ZERO_HOST_DEVICE constexpr float finite_magnitude(float value) noexcept {
    std::uint32_t const magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffffU;
    return __builtin_bit_cast(float, magnitude < 0x7f800000U ? magnitude : 0U);
}

/// @brief Raises the magnitude of a scaled value to at least 2^-24, the smallest positive float16,
/// unless `value` is zero.
///
/// If the second moment vanished while the first did not, the next update would be as large as
/// 1 / epsilon.
/// @param scaled `value` divided by the scale
ZERO_HOST_DEVICE constexpr float keep_from_zero(float scaled, float value) noexcept {
    auto const bits = __builtin_bit_cast(std::uint32_t, scaled);
    bool const vanishes = value != 0.0F && (bits & 0x7fffffffU) < 0x33800000U;
    return vanishes ? __builtin_bit_cast(float, (bits & 0x80000000U) | 0x33800000U) : scaled;
}

} // namespace ZERO_NAMESPACE::ops
