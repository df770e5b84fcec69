#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../ops/host_device.hpp"
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

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/no_loss_scaler.ipp"
#endif
