#pragma once

#include "../storage_types.hpp"
#include "namespace.hpp"

#include <bit>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Rounds to nearest, ties to even. `from_float` calls it.
constexpr bfloat16 round_to_bfloat16(float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    // Rounding could carry a NaN into infinity or -0, so keep its top bits and make it quiet.
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return bfloat16{static_cast<std::uint16_t>((bits >> 16U) | 0x0040U)};
    }
    return bfloat16{static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

/// @brief Rounds to nearest, ties to even, as round_to_bfloat16 does.
constexpr float16 round_to_float16(float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    auto const sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    std::uint32_t const magnitude = bits & 0x7fffffffU;
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated() && magnitude <= 0x7f800000U) {
        std::uint16_t result = 0;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
        return float16{result};
    }
#endif
    if (magnitude > 0x7f800000U) {
        return float16{static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x01ffU))};
    }
    if (magnitude >= 0x477ff000U) { // 65520 and above round to infinity
        return float16{static_cast<std::uint16_t>(sign | 0x7c00U)};
    }
    // Below 2^-14, adding 0.5 rounds to a multiple of 2^-24, to nearest even.
    if (magnitude < 0x38800000U) {
        float const shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return float16{static_cast<std::uint16_t>(
            sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
    }
    std::uint32_t const rounded = magnitude + 0x0fffU + ((magnitude >> 13U) & 1U);
    return float16{static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U))};
}

} // namespace ZERO_NAMESPACE::detail
