#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "host_device.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::ops {

/// @brief Number of elements that share a scale.
inline constexpr std::size_t scaled_block_elements = 64;

/// @brief Returns the scale of a block of float16 or float8_e4m3 numbers. A float is divided by it
/// before it is stored, and multiplied by it after it is loaded.
///
/// The scale s is the power of two with 2^14 <= largest / s < 2^15 (float8_e4m3: from 2^7 to 2^8),
/// but at least 2^-126, so that its inverse is a normal float. It is 1 if `largest` is 0. No such
/// quotient overflows when rounded. Division and multiplication are exact, except for quotients
/// below the smallest positive number of the type. A magnitude of 2^128 - 2^116 or more rounds to
/// 2^128 and becomes infinite when loaded, as in bfloat16; rounded stochastically, one above 2^128
/// - 2^117 may. In float8_e4m3 it is one above 2^128 - 2^124.
/// @param largest the largest finite magnitude of the block
template <StateStorageType S = float16>
ZERO_HOST_DEVICE constexpr float block_scale(float largest) noexcept {
    std::uint32_t const exponent = std::bit_cast<std::uint32_t>(largest) >> 23U; // biased by 127
    constexpr std::uint32_t top = std::is_same_v<S, float16> ? 14U : 7U;
    std::uint32_t const scale = exponent > top + 1U ? exponent - top : 1U;
    return largest == 0.0F ? 1.0F : std::bit_cast<float>(scale << 23U);
}

/// @brief 1 / scale, exactly.
ZERO_HOST_DEVICE constexpr float inverse_block_scale(float scale) noexcept {
    return std::bit_cast<float>((254U << 23U) - std::bit_cast<std::uint32_t>(scale));
}

/// @brief The magnitude of a value, or 0 if it is infinite or NaN.
ZERO_HOST_DEVICE constexpr float finite_magnitude(float value) noexcept {
    std::uint32_t const magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
    return std::bit_cast<float>(magnitude < 0x7f800000U ? magnitude : 0U);
}

/// @brief The bits of the smallest positive number of a type of scaled states.
template <StateStorageType S>
inline constexpr std::uint32_t least_state_bits =
    std::is_same_v<S, float16> ? 0x33800000U : 0x3b000000U; // 2^-24, 2^-9

/// @brief Raises the magnitude of a scaled value to at least the smallest positive number of its
/// type, unless `value` is zero.
///
/// If the second moment vanished while the first did not, the next update would be as large as
/// 1 / epsilon.
/// @param scaled `value` divided by the scale
template <StateStorageType S = float16>
ZERO_HOST_DEVICE constexpr float keep_from_zero(float scaled, float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(scaled);
    bool const vanishes = value != 0.0F && (bits & 0x7fffffffU) < least_state_bits<S>;
    return vanishes ? std::bit_cast<float>((bits & 0x80000000U) | least_state_bits<S>) : scaled;
}

} // namespace ZERO_NAMESPACE::ops
