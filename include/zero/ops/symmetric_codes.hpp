#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "arithmetic.hpp"

#include <cstdint>

/// @file
/// @brief The arithmetic of symmetric codes of a block: a scale, and integers of equal magnitude on
/// both sides of 0. `Int8Blocks`, the host's loops and the kernels use it.

namespace ZERO_NAMESPACE::ops {

/// @brief Returns the scale of a block of symmetric codes: `largest` / `levels`, rounded to
/// bfloat16, at least 2^-126, so that its inverse is a normal float. NaN if `largest` is infinite
/// or NaN.
///
/// No quotient of a value and the scale rounds to more than `levels`.
ZERO_HOST_DEVICE inline float code_scale(float largest, float levels) noexcept {
    std::uint32_t const quotient = __builtin_bit_cast(std::uint32_t, div(largest, levels));
    std::uint32_t const scale = (quotient + 0x8000U) & 0xffff0000U;
    bool const is_finite = __builtin_bit_cast(std::uint32_t, largest) < 0x7f800000U;
    std::uint32_t const at_least = scale < 0x00800000U ? 0x00800000U : scale;
    return __builtin_bit_cast(float, is_finite ? at_least : 0x7fc00000U);
}

/// @brief Returns the integer nearest to a product, even if two are as near. The product is at most
/// 2^22 in magnitude.
ZERO_HOST_DEVICE inline std::int32_t nearest_integer(float product) noexcept {
    float const shifted = add(product, 12582912.0F); // 1.5 * 2^23: its last bit is worth 1
    return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, shifted) - 0x4b400000U);
}

/// @brief The larger of two magnitudes as bits, which are ordered as magnitudes are; NaN is above
/// infinity.
ZERO_HOST_DEVICE constexpr std::uint32_t larger_magnitude_bits(std::uint32_t largest,
                                                               float value) noexcept {
    std::uint32_t const magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffffU;
    return largest < magnitude ? magnitude : largest;
}

} // namespace ZERO_NAMESPACE::ops
