#pragma once

#include "../../core/detail/namespace.hpp"
#include "../host_device.hpp"

namespace ZERO_NAMESPACE::ops::detail {

/// @brief A product that is exact, so contraction cannot change it. The intrinsic keeps device code
/// independent of compiler flags.
ZERO_HOST_DEVICE constexpr float exact_product(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fmul_rn(a, b);
    }
#endif
    return a * b;
}

/// @brief A difference that is exact. See `exact_product`.
ZERO_HOST_DEVICE constexpr float exact_difference(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fsub_rn(a, b);
    }
#endif
    return a - b;
}

} // namespace ZERO_NAMESPACE::ops::detail
