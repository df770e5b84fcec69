#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../loss_scaler.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws unless `value` is a loss scale: positive and finite, with a finite inverse.
/// @param name the name of the option or member, for the message
/// @throws InvalidArgument
void require_scale(float value, char const* name);

[[gnu::cold]] inline void require_scale(float value, char const* name) {
    if (!(value > 0.0F) || !is_finite(value)) {
        throw_error<InvalidArgument>(
            {"zero: the loss scaler's ", name, " is ", value, "; it must be positive and finite."});
    }
    if (value < smallest_loss_scale) {
        throw_error<InvalidArgument>(
            {"zero: the loss scaler's ", name,
             " is below 2^-126, where its inverse would overflow; give a larger one."});
    }
}

} // namespace ZERO_NAMESPACE::detail
