#pragma once

#include "../no_loss_scaler.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void NoLossScaler::validate_state(State state, Options const&) {
    if (state.scale != 1.0F) {
        detail::throw_error<InvalidArgument>(
            {"zero: the loss scale ", state.scale,
             " is given to a stage without a loss scaler, whose scale is 1; add "
             "StaticLossScaler or DynamicLossScaler to its policies."});
    }
}

} // namespace ZERO_NAMESPACE
