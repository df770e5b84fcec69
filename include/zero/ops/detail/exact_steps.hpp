#pragma once

#include "../../core/detail/namespace.hpp"
#include "../host_device.hpp"

namespace ZERO_NAMESPACE::ops::detail {

/// A product that rounding does not change, so contraction would not either; a device's code is the
/// same with and without it.
ZERO_HOST_DEVICE constexpr float exact_product(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fmul_rn(a, b);
    }
#endif
    return a * b;
}

/// The same for a difference.
ZERO_HOST_DEVICE constexpr float exact_difference(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fsub_rn(a, b);
    }
#endif
    return a - b;
}

} // namespace ZERO_NAMESPACE::ops::detail
