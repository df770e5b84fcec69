#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "arithmetic.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::ops {

/// @brief Computes base^exponent by squaring, from the lowest bit of the exponent. Every product is
/// rounded once in double.
///
/// The bits are equal on host and device and for every standard library, which `pow` does not
/// guarantee. O(log exponent). The relative error is below 2 * exponent * 2^-53, far below one
/// float rounding until the power itself vanishes.
ZERO_HOST_DEVICE inline double integer_power(double base, std::uint64_t exponent) noexcept {
    double result = 1.0;
    for (double square = base; exponent != 0; exponent >>= 1U) {
        if ((exponent & 1U) != 0) {
            result = mul(result, square);
        }
        square = mul(square, square);
    }
    return result;
}

} // namespace ZERO_NAMESPACE::ops
