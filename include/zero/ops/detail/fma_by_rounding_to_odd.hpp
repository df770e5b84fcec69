#pragma once

#include "../../core/detail/namespace.hpp"

#include <bit>
#include <cstdint>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief Computes a * b + c with one rounding, for hardware without a fused multiply-add.
///
/// The product of two floats is exact in double. The sum is rounded to odd: an inexact result gets
/// an odd last bit. Rounding an odd result of 53 bits to at most 24 bits equals rounding the exact
/// result.
constexpr float fma_by_rounding_to_odd(float a, float b, float c) noexcept {
    double const product = static_cast<double>(a) * static_cast<double>(b);
    double const addend = static_cast<double>(c);
    double const sum = product + addend;
    double const part = sum - product;
    double const error =
        (product - (sum - part)) + (addend - part); // exact: sum + error = product + addend
    auto bits = std::bit_cast<std::uint64_t>(sum);
    bool const inexact = error < 0.0 || error > 0.0; // false for the NaN that an infinity leaves
    if (inexact && (bits & 1U) == 0) {
        bits = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
    }
    return static_cast<float>(std::bit_cast<double>(bits));
}

} // namespace ZERO_NAMESPACE::ops::detail
