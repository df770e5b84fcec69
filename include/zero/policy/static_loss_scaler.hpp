#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "detail/require_scale.hpp"
#include "loss_scaler.hpp"

namespace ZERO_NAMESPACE {

/// @brief Options of `StaticLossScaler`.
struct StaticLossScalerOptions {
    float scale = 65536.0F; ///< finite, at least 2^-126
};

/// @brief A constant loss scale. A step with non-finite gradients is skipped.
struct StaticLossScaler {
    using policy_category = LossScalerCategory;
    using Options = StaticLossScalerOptions;
    struct State {
        float scale = 1.0F;
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options) { detail::require_scale(options.scale, "scale"); }
    /// @brief Calls `visit(name, tracker)` for the scale, for checkpoints.
    template <class S, class Visitor>
    static void for_each_tracker(S& state, Visitor&& visit) {
        visit("scale", state.scale);
    }

    static State initial(Options const& options) noexcept { return {options.scale}; }
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add(double{options.scale});
    }
    ZERO_HOST_DEVICE static State next(State state, bool /*overflow*/, Options const&) noexcept {
        return state;
    }
    ZERO_HOST_DEVICE static bool is_exhausted(State, Options const&) noexcept { return false; }
};
static_assert(LossScaler<StaticLossScaler>);

} // namespace ZERO_NAMESPACE
