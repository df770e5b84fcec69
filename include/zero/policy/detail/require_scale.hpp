#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../loss_scaler.hpp"

namespace ZERO_NAMESPACE::detail {

/// The scale and its inverse, which unscales, must be numbers.
inline void require_scale(float value, char const* name) {
    if (!(value > 0.0F) || !detail::is_finite(value)) {
        detail::throw_error<InvalidArgument>(
            {"zero: the loss scaler's ", name, " is ", value, "; it must be positive and finite."});
    }
    if (value < smallest_loss_scale) {
        detail::throw_error<InvalidArgument>(
            {"zero: the loss scaler's ", name,
             " is below 2^-126, where its inverse would overflow; give a larger one."});
    }
}

} // namespace ZERO_NAMESPACE::detail
