#pragma once

#include "detail/namespace.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief IEEE 754 binary16 as a two-byte storage type. It is copied and converted (`to_float`,
/// `from_float<float16>`); arithmetic is done in float.
struct float16 {
    std::uint16_t bits = 0; ///< sign, 5 bits of exponent, 10 of significand

    constexpr float16() = default;
    constexpr explicit float16(std::uint16_t pattern) noexcept : bits(pattern) {} ///< from bits
    template <class Value>
        requires std::is_floating_point_v<Value>
    float16(Value) = delete; ///< use `from_float<float16>`, which rounds

    /// @brief Compares bits: -0 differs from +0, and a NaN equals itself.
    friend constexpr bool operator==(float16, float16) = default;
};

/// @brief The upper half of an IEEE 754 binary32 as a two-byte storage type, used like `float16`.
struct bfloat16 {
    std::uint16_t bits = 0; ///< sign, 8 bits of exponent, 7 of significand

    constexpr bfloat16() = default;
    constexpr explicit bfloat16(std::uint16_t pattern) noexcept : bits(pattern) {} ///< from bits
    template <class Value>
        requires std::is_floating_point_v<Value>
    bfloat16(Value) = delete; ///< use `from_float<bfloat16>`, which rounds

    /// @brief Compares bits.
    friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// @brief The element types of parameters and gradients: float, bfloat16 and float16.
template <class T>
concept StorageType =
    std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

} // namespace ZERO_NAMESPACE
