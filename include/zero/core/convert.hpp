#pragma once

#include "detail/namespace.hpp"
#include "detail/round_to_16_bit.hpp"
#include "storage_types.hpp"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief Converts to float, exactly.
constexpr float to_float(float value) noexcept {
    return value;
}

/// @copydoc to_float(float)
constexpr float to_float(bfloat16 value) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// @copydoc to_float(float)
///
/// Almost branch-free: the exponent is shifted into place and re-biased by one exact
/// multiplication, which also normalises subnormals.
constexpr float to_float(float16 value) noexcept {
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
        return std::bit_cast<float>(sign | 0x70000000U | magnitude | quiet);
    }
    float const scaled = std::bit_cast<float>(magnitude) * 0x1.0p112F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

/// @brief Converts from float, rounding to nearest, ties to even. Overflow gives infinity; a NaN
/// becomes a quiet NaN.
template <StorageType T>
constexpr T from_float(float value) noexcept {
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
