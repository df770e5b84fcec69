#pragma once

#include "convert.hpp"
#include "detail/namespace.hpp"
#include "host_device.hpp"
#include "storage_types.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief A float as a bfloat16, rounded to nearest with ties to even, and the remainder that
/// restores the float.
///
/// As integers, a float and its rounded upper half differ by -2^15 to 2^15 inclusive, because ties
/// on both sides round to an even half. These are 65537 differences, one more than 16 bits can
/// encode, so no 16-bit remainder is exact. (Existing 16-bit encodings round ties up instead, which
/// gives another bfloat16 in one case of 2^17.) Here the difference is a 17-bit number in two's
/// complement: `remainder` holds the lower 16 bits, `is_rounded_up` the sign.
struct SplitFloat {
    bfloat16 half;               ///< the float, rounded to nearest, ties to even
    std::uint16_t remainder = 0; ///< the lower 16 bits of float minus half, as integers
    bool is_rounded_up = false;  ///< true if that difference is negative
};

/// @brief Splits a float, exactly. A NaN becomes the quiet NaN of its upper half.
ZERO_HOST_DEVICE constexpr SplitFloat split(float value) noexcept {
    bfloat16 const half = from_float<bfloat16>(value);
    if (value != value) {
        return {half, 0, false};
    }
    auto const bits = __builtin_bit_cast(std::uint32_t, value);
    return {half, static_cast<std::uint16_t>(bits & 0xffffU), half.bits != bits >> 16U};
}

/// @brief Restores the float that was split.
ZERO_HOST_DEVICE constexpr float join(SplitFloat parts) noexcept {
    std::uint32_t const bits = static_cast<std::uint32_t>(parts.half.bits) << 16U | parts.remainder;
    return __builtin_bit_cast(float, bits - (parts.is_rounded_up ? 0x10000U : 0U));
}

} // namespace ZERO_NAMESPACE
