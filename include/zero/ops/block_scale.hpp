#pragma once

#include "../core/detail/namespace.hpp"
#include "host_device.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::ops {

/// @brief Elements that share a scale: a leaf of the layout.
inline constexpr std::size_t scaled_block_elements = 64;

/// @brief The scale of a block of float16 numbers: what they are multiplied with to be read, and
/// what a float is divided by to be stored.
///
/// The power of two s for which 2^14 <= largest / s < 2^15, but at least 2^-126, so that its
/// inverse is a float, too; 1 for 0. Below 2^15 no rounding overflows float16. Division and
/// multiplication are exact but for quotients below the least float16. A magnitude of 2^128 - 2^116
/// or more rounds to 2^128 and is infinite when it is read, as it is in bfloat16.
/// @param largest the largest finite magnitude of the block
ZERO_HOST_DEVICE constexpr float block_scale(float largest) noexcept {
    std::uint32_t const exponent = std::bit_cast<std::uint32_t>(largest) >> 23U; // biased by 127
    std::uint32_t const scale = exponent > 15U ? exponent - 14U : 1U;
    return largest == 0.0F ? 1.0F : std::bit_cast<float>(scale << 23U);
}

/// @brief 1 / scale, exactly.
ZERO_HOST_DEVICE constexpr float inverse_block_scale(float scale) noexcept {
    return std::bit_cast<float>((254U << 23U) - std::bit_cast<std::uint32_t>(scale));
}

/// @brief A magnitude as it counts for the scale: 0 for infinities and NaN.
ZERO_HOST_DEVICE constexpr float finite_magnitude(float value) noexcept {
    std::uint32_t const magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
    return std::bit_cast<float>(magnitude < 0x7f800000U ? magnitude : 0U);
}

/// @brief What is stored for a value that was divided by the scale: nothing but zero becomes less
/// than 2^-24, the least float16. A second moment that vanished while the first did not would make
/// the next update as large as the inverse of epsilon.
ZERO_HOST_DEVICE constexpr float keep_from_zero(float scaled, float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(scaled);
    bool const vanishes = value != 0.0F && (bits & 0x7fffffffU) < 0x33800000U;
    return vanishes ? std::bit_cast<float>((bits & 0x80000000U) | 0x33800000U) : scaled;
}

} // namespace ZERO_NAMESPACE::ops
