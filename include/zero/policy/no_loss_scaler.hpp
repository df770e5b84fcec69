#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "loss_scaler.hpp"

namespace ZERO_NAMESPACE {

/// @brief `NoLossScaler` has no options.
struct NoLossScalerOptions {};

/// @brief No loss scaling: the scale is 1. The engine option `non_finite` selects the response to
/// non-finite gradients.
struct NoLossScaler {
    using policy_category = LossScalerCategory;
    using Options = NoLossScalerOptions;
    struct State {
        float scale = 1.0F;
    };
    static constexpr bool skips_overflow = false;

    static void validate(Options const&) {}
    static void validate_state(State state, Options const&);

    /// @brief Calls `visit(name, tracker)` for the scale, for checkpoints.
    template <class S, class Visitor>
    static void for_each_tracker(S& state, Visitor&& visit) {
        visit("scale", state.scale);
    }

    static State initial(Options const&) noexcept { return {}; }
    ZERO_HOST_DEVICE static State next(State state, bool /*overflow*/, Options const&) noexcept {
        return state;
    }
    ZERO_HOST_DEVICE static bool is_exhausted(State, Options const&) noexcept { return false; }
};
static_assert(LossScaler<NoLossScaler>);

[[gnu::cold]] inline void NoLossScaler::validate_state(State state, Options const&) {
    if (state.scale != 1.0F) {
        detail::throw_error<InvalidArgument>(
            {"zero: the loss scale ", state.scale,
             " is given to a stage without a loss scaler, whose scale is 1; add "
             "StaticLossScaler or DynamicLossScaler to its policies."});
    }
}

} // namespace ZERO_NAMESPACE
