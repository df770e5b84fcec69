#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace zero {

/// @brief IEEE 754 binary16 as a two-byte storage type: it is moved and converted (`to_float`, `from_float<float16>`), never computed with.
struct float16 {
    std::uint16_t bits = 0; ///< sign, 5 bits of exponent, 10 of significand

    constexpr float16() = default;
    constexpr explicit float16(std::uint16_t pattern) noexcept : bits(pattern) {} ///< from its bits
    template <class Value>
        requires std::is_floating_point_v<Value>
    float16(Value) = delete; ///< `from_float<float16>` rounds a value

    friend constexpr bool operator==(float16, float16) = default; ///< equal bits (so -0 differs from +0, a NaN equals itself)
};

/// @brief The upper half of an IEEE 754 binary32 as a two-byte storage type.
struct bfloat16 {
    std::uint16_t bits = 0; ///< sign, 8 bits of exponent, 7 of significand

    constexpr bfloat16() = default;
    constexpr explicit bfloat16(std::uint16_t pattern) noexcept : bits(pattern) {} ///< from its bits
    template <class Value>
        requires std::is_floating_point_v<Value>
    bfloat16(Value) = delete; ///< `from_float<bfloat16>` rounds a value

    friend constexpr bool operator==(bfloat16, bfloat16) = default; ///< equal bits
};

/// @brief Exact conversion to float.
constexpr float to_float(float value) noexcept { return value; }

/// @copydoc to_float(float)
constexpr float to_float(bfloat16 value) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// @copydoc to_float(float)
/// Branch-light: the exponent is shifted into place and re-biased by one exact multiplication, which also normalises subnormals.
constexpr float to_float(float16 value) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated() && (value.bits & 0x7fffU) <= 0x7c00U) { // a NaN keeps its bits only below
        float result = 0.0F;
        asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
        return result;
    }
#endif
    std::uint32_t const sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
    std::uint32_t const magnitude = static_cast<std::uint32_t>(value.bits & 0x7fffU) << 13U;
    if (magnitude >= 0x0f800000U) { // infinity or NaN: the exponent becomes all ones, a NaN becomes quiet
        std::uint32_t const quiet = magnitude > 0x0f800000U ? 0x00400000U : 0U;
        return std::bit_cast<float>(sign | 0x70000000U | magnitude | quiet);
    }
    float const scaled = std::bit_cast<float>(magnitude) * 0x1.0p112F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

namespace detail {

constexpr bfloat16 round_to_bfloat16(float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) { // rounding could carry a NaN into infinity or -0: keep its top bits, make it quiet
        return bfloat16{static_cast<std::uint16_t>((bits >> 16U) | 0x0040U)};
    }
    return bfloat16{static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

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
    if (magnitude < 0x38800000U) { // below 2^-14: the addition of 0.5 rounds to a multiple of 2^-24, to nearest even
        float const shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return float16{static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
    }
    std::uint32_t const rounded = magnitude + 0x0fffU + ((magnitude >> 13U) & 1U);
    return float16{static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U))};
}

} // namespace detail

/// @brief The floating-point types that parameters and gradients are stored in.
template <class T>
concept StorageType = std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// @brief Conversion from float: to nearest, ties to even; overflow gives infinity; a NaN stays a (quiet) NaN.
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

/// @brief True when every value of `From` is a value of `To`.
template <StorageType To, StorageType From>
inline constexpr bool is_exact_conversion = std::is_same_v<To, From> || std::is_same_v<To, float>;

} // namespace zero
