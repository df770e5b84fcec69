#pragma once

// Checks the options of the scaler. The rule by which the scale moves is `next` in the header.

#include "../dynamic_loss_scaler.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../loss_scaler.hpp"
#include "require_scale.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void DynamicLossScaler::require(bool holds, char const* what) {
    if (!holds) {
        detail::throw_error<InvalidArgument>({"zero: the dynamic loss scaler's ", what, '.'});
    }
}

ZERO_COLD_INLINE void DynamicLossScaler::validate(Options const& options) {
    detail::require_scale(options.initial_scale, "initial_scale");
    detail::require_scale(options.minimum, "minimum");
    detail::require_scale(options.maximum, "maximum");
    if (options.initial_scale < options.minimum || options.initial_scale > options.maximum) {
        detail::throw_error<InvalidArgument>(
            {"zero: the dynamic loss scaler's initial_scale ", options.initial_scale,
             " lies outside minimum..maximum, ", options.minimum, "..", options.maximum,
             "; give another one, or wider bounds."});
    }
    require(options.growth_factor > 1.0 && detail::is_finite(options.growth_factor),
            "growth_factor must be above 1");
    require(options.backoff_factor > 0.0 && options.backoff_factor < 1.0,
            "backoff_factor must lie between 0 and 1");
    require(options.growth_interval >= 1, "growth_interval must be at least 1");
    require(options.hysteresis >= 1, "hysteresis must be at least 1");
    require(options.at_minimum != AtMinimumScale::call_back || options.on_minimum != nullptr,
            "at_minimum is call_back, but on_minimum is null");
    require(options.at_minimum == AtMinimumScale::call_back
                || (options.on_minimum == nullptr && options.context == nullptr),
            "on_minimum and context would be ignored; set at_minimum to call_back, or leave "
            "them out");
}

ZERO_COLD_INLINE void DynamicLossScaler::validate_state(State state, Options const& options) {
    if (state.scale < options.minimum || state.scale > options.maximum) {
        detail::throw_error<InvalidArgument>(
            {"zero: the loss scale ", state.scale,
             " lies outside minimum..maximum of the dynamic loss scaler, ", options.minimum, "..",
             options.maximum, "; give another one, or wider bounds."});
    }
}

ZERO_COLD_INLINE void DynamicLossScaler::add_to(Hash& hash, Options const& options) noexcept {
    hash.add(double{options.initial_scale}).add(options.growth_factor).add(options.backoff_factor);
    hash.add(options.growth_interval)
        .add(options.growth_delay)
        .add(options.hysteresis)
        .add(options.consecutive_hysteresis);
    hash.add(double{options.minimum})
        .add(double{options.maximum})
        .add(options.at_maximum)
        .add(options.at_minimum);
}

} // namespace ZERO_NAMESPACE
