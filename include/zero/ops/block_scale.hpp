#pragma once

#include "host_device.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zero::ops {

/// @brief Elements that share a scale: a leaf of the layout.
inline constexpr std::size_t scaled_block_elements = 64;

/// @brief The least positive float16. What is not zero is stored as no less: a second moment that vanished while the first did not would
/// make the next update as large as the inverse of epsilon.
inline constexpr float least_scaled = 0x1p-24F;

/// @brief The scale of a block of float16 numbers: what they are multiplied with to be read, and what a float is divided by to be stored.
///
/// The power of two s for which 2^14 <= largest / s < 2^15, but at least 2^-126, so that its inverse is a float, too; 1 for 0. Below 2^15 no rounding
/// overflows float16. Division and multiplication are exact but for quotients below the least float16. A magnitude of 2^128 - 2^116
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

} // namespace zero::ops
