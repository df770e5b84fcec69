#pragma once

#include "detail/namespace.hpp"
#include "host_device.hpp"
#include "storage_types.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Rounds to nearest, ties to even. `from_float` calls it.
ZERO_HOST_DEVICE constexpr bfloat16 round_to_bfloat16(float value) noexcept {
    auto const bits = __builtin_bit_cast(std::uint32_t, value);
    // Rounding could carry a NaN into infinity or -0, so keep its top bits and make it quiet.
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return bfloat16::from_bits(static_cast<std::uint16_t>((bits >> 16U) | 0x0040U));
    }
    return bfloat16::from_bits(
        static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U));
}

/// @brief Rounds to nearest, ties to even, as round_to_bfloat16 does.
ZERO_HOST_DEVICE constexpr float16 round_to_float16(float value) noexcept {
    auto const bits = __builtin_bit_cast(std::uint32_t, value);
    auto const sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    std::uint32_t const magnitude = bits & 0x7fffffffU;
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated() && magnitude <= 0x7f800000U) {
        std::uint16_t result = 0;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
        return float16::from_bits(result);
    }
#endif
    if (magnitude > 0x7f800000U) {
        return float16::from_bits(
            static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x01ffU)));
    }
    if (magnitude >= 0x477ff000U) { // 65520 and above round to infinity
        return float16::from_bits(static_cast<std::uint16_t>(sign | 0x7c00U));
    }
    // Below 2^-14, adding 0.5 rounds to a multiple of 2^-24, to nearest even.
    if (magnitude < 0x38800000U) {
        float const shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
        return float16::from_bits(static_cast<std::uint16_t>(
            sign | (__builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U)));
    }
    std::uint32_t const rounded = magnitude + 0x0fffU + ((magnitude >> 13U) & 1U);
    return float16::from_bits(static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U)));
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Converts to float, exactly.
ZERO_HOST_DEVICE constexpr float to_float(float value) noexcept {
    return value;
}

/// @copydoc to_float(float)
ZERO_HOST_DEVICE constexpr float to_float(bfloat16 value) noexcept {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16U);
}

/// @copydoc to_float(float)
///
/// Almost branch-free: the exponent is shifted into place and re-biased by one exact
/// multiplication, which also normalises subnormals.
ZERO_HOST_DEVICE constexpr float to_float(float16 value) noexcept {
#if defined(__CUDA_ARCH__)
    // The instruction would change the bits of a NaN, so NaNs take the path below.
    if (!__builtin_is_constant_evaluated() && (value.bits & 0x7fffU) <= 0x7c00U) {
        float result = 0.0F;
        asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
        return result;
    }
#endif
    std::uint32_t const sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
    std::uint32_t const magnitude = static_cast<std::uint32_t>(value.bits & 0x7fffU) << 13U;
    // Infinity or NaN: the exponent becomes all ones, and a NaN becomes quiet.
    if (magnitude >= 0x0f800000U) {
        std::uint32_t const quiet = magnitude > 0x0f800000U ? 0x00400000U : 0U;
        return __builtin_bit_cast(float, sign | 0x70000000U | magnitude | quiet);
    }
    float const scaled = __builtin_bit_cast(float, magnitude) * 0x1.0p112F;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, scaled) | sign);
}

ZERO_HOST_DEVICE constexpr bfloat16::operator float() const noexcept {
    return to_float(*this);
}

ZERO_HOST_DEVICE constexpr float16::operator float() const noexcept {
    return to_float(*this);
}

/// @brief Converts from float, rounding to nearest, ties to even. Overflow gives infinity; a NaN
/// becomes a quiet NaN.
template <StorageType T>
ZERO_HOST_DEVICE constexpr T from_float(float value) noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return value;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        return detail::round_to_bfloat16(value);
    } else {
        return detail::round_to_float16(value);
    }
}

/// @brief True if `To` represents every value of `From`.
template <StorageType To, StorageType From>
inline constexpr bool is_exact_conversion = std::is_same_v<To, From> || std::is_same_v<To, float>;

} // namespace ZERO_NAMESPACE
