#pragma once

#include "detail/namespace.hpp"
#include "host_device.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief IEEE 754 binary16 as a two-byte storage type. It is copied and converted (`to_float`,
/// `from_float<float16>`); arithmetic is done in float.
struct float16 {
    std::uint16_t bits = 0; ///< sign, 5 bits of exponent, 10 of significand

    constexpr float16() = default;

    /// @brief Refused, because a number could be meant as a value or as bits: `from_float<float16>`
    /// rounds a value, and `from_bits` takes bits.
    template <class Number>
        requires std::is_arithmetic_v<Number>
    float16(Number) = delete;

    /// @brief Returns the number with these bits.
    [[nodiscard]] ZERO_HOST_DEVICE static constexpr float16
    from_bits(std::uint16_t pattern) noexcept {
        float16 result;
        result.bits = pattern;
        return result;
    }

    /// @brief Converts exactly, as `to_float` does. Include core/convert.hpp to call it.
    ZERO_HOST_DEVICE constexpr explicit operator float() const noexcept;

    /// @brief Compares bits: -0 differs from +0, and a NaN equals itself.
    friend constexpr bool operator==(float16, float16) = default;
};

/// @brief The upper half of an IEEE 754 binary32 as a two-byte storage type, used like `float16`.
struct bfloat16 {
    std::uint16_t bits = 0; ///< sign, 8 bits of exponent, 7 of significand

    constexpr bfloat16() = default;

    /// @brief Refused, because a number could be meant as a value or as bits:
    /// `from_float<bfloat16>` rounds a value, and `from_bits` takes bits.
    template <class Number>
        requires std::is_arithmetic_v<Number>
    bfloat16(Number) = delete;

    /// @brief Returns the number with these bits.
    [[nodiscard]] ZERO_HOST_DEVICE static constexpr bfloat16
    from_bits(std::uint16_t pattern) noexcept {
        bfloat16 result;
        result.bits = pattern;
        return result;
    }

    /// @brief Converts exactly, as `to_float` does. Include core/convert.hpp to call it.
    ZERO_HOST_DEVICE constexpr explicit operator float() const noexcept;

    /// @brief Compares bits.
    friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// @brief An 8-bit code of an optimizer state in a block of 64 with a scale (`BlockScaledState`).
/// It has no value without the scale: see ops/power_codes.hpp.
/// An enumeration, because nvcc 13.0 cannot pass a pointer to a struct of one byte to an intrinsic.
/// 0 is the value 0 in a block whose scale is positive.
enum class power8 : std::int8_t {};

/// @brief The element types of parameters and gradients: float, bfloat16 and float16.
template <class T>
concept StorageType =
    std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// @brief The types that a state of an optimizer is stored in.
template <class T>
concept StateStorageType = StorageType<T> || std::is_same_v<T, power8>;

} // namespace ZERO_NAMESPACE
