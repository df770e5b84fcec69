#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "../ops/arithmetic.hpp"
#include "loss_scaler.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The response to an overflow at the minimum scale.
enum class AtMinimumScale : std::uint8_t {
    hold,        ///< keep the minimum; the step is skipped
    throw_error, ///< `step` waits for the decision and throws LossScaleExhausted
    call_back    ///< `step` waits for the decision and calls `on_minimum`
};

/// @brief The response to growth beyond the maximum scale.
enum class AtMaximumScale : std::uint8_t {
    clamp, ///< the scale becomes the maximum
    hold   ///< the scale stays; the count of clean steps restarts
};

/// @brief Options of `DynamicLossScaler`. `loss_scaler_presets.hpp` has the rules of other systems.
struct DynamicLossScalerOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    float initial_scale = 65536.0F;            ///< from `minimum` to `maximum`
    double growth_factor = 2.0;                ///< > 1
    double backoff_factor = 0.5;               ///< in (0, 1)
    std::uint32_t growth_interval =
        1000; ///< consecutive clean steps before the scale grows; at least 1
    std::uint32_t growth_delay =
        0; ///< additional clean steps before the first growth after the start or an overflow
    std::uint32_t hysteresis = 2; ///< overflows until the first reduction; at least 1
    bool consecutive_hysteresis =
        false;            ///< restore the hysteresis on every clean step instead of on growth only
    float minimum = 1.0F; ///< at least 2^-126, so that the inverse is finite
    float maximum = 16777216.0F;                       ///< upper bound of the scale (2^24)
    AtMaximumScale at_maximum = AtMaximumScale::clamp; ///< response to growth beyond `maximum`
    AtMinimumScale at_minimum = AtMinimumScale::hold;  ///< response to an overflow at `minimum`
    void (*on_minimum)(void* context) = nullptr;       ///< only for AtMinimumScale::call_back
    void* context = nullptr;                           ///< passed to `on_minimum`
};

/// @brief A loss scale that grows after an interval of clean steps and shrinks on overflows. A step
/// that overflows is skipped.
///
/// An overflow first decrements the hysteresis. When the hysteresis is used up, every overflow
/// shrinks the scale until the next growth. The scale is a float and the factors are doubles: their
/// product is computed in double and rounded to float, as PyTorch's GradScaler does. (Micikevicius
/// et al., Mixed Precision Training, 2018, section 3.2; the hysteresis as in Megatron-LM.)
struct DynamicLossScaler {
    using policy_category = LossScalerCategory;
    using Options = DynamicLossScalerOptions;
    struct State {
        float scale = 1.0F;
        std::uint32_t clean_steps = 0;     ///< consecutive clean steps towards the next growth
        std::uint32_t hysteresis_left = 1; ///< overflows until the next reduction
        std::uint32_t delay_left = 0;      ///< clean steps that are not counted yet
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options);

    /// @brief Rejects a caller-defined state from which the rule cannot continue. @throws
    /// InvalidArgument
    static void validate_state(State state, Options const& options);

    /// @brief Hashes the options that must be equal on all ranks. The callback and its context are
    /// excluded.
    static void add_to(Hash& hash, Options const& options) noexcept;

    /// @brief Calls `visit(name, tracker)` for each tracker, for checkpoints.
    template <class S, class Visitor>
    static void for_each_tracker(S& state, Visitor&& visit) {
        visit("scale", state.scale);
        visit("clean_steps", state.clean_steps);
        visit("hysteresis_left", state.hysteresis_left);
        visit("delay_left", state.delay_left);
    }

    static State initial(Options const& options) noexcept {
        return {options.initial_scale, 0, options.hysteresis, options.growth_delay};
    }

    ZERO_HOST_DEVICE static State next(State state, bool overflow,
                                       Options const& options) noexcept {
        if (overflow) {
            state.clean_steps = 0;
            state.delay_left = options.growth_delay;
            if (state.hysteresis_left > 1) {
                --state.hysteresis_left;
            } else {
                float const smaller = times(state.scale, options.backoff_factor);
                state.scale = smaller < options.minimum ? options.minimum : smaller;
            }
            return state;
        }
        if (options.consecutive_hysteresis) {
            state.hysteresis_left = options.hysteresis;
        }
        if (state.delay_left > 0) {
            --state.delay_left;
        } else if (++state.clean_steps >= options.growth_interval) {
            // clean_steps exceeds the interval only in a state that the caller set.
            float const larger = times(state.scale, options.growth_factor);
            float const most =
                options.at_maximum == AtMaximumScale::clamp ? options.maximum : state.scale;
            state.scale = larger > options.maximum ? most : larger;
            state.clean_steps = 0;
            state.hysteresis_left = options.hysteresis;
        }
        return state;
    }

    /// @brief True if an overflow now would leave the scale at its minimum.
    ZERO_HOST_DEVICE static bool is_exhausted(State state, Options const& options) noexcept {
        return state.hysteresis_left <= 1 && state.scale <= options.minimum;
    }

private:
    ZERO_HOST_DEVICE static float times(float scale, double factor) noexcept {
        return static_cast<float>(ops::mul(static_cast<double>(scale), factor));
    }

    static void require(bool holds, char const* what);
};
static_assert(LossScaler<DynamicLossScaler>);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/dynamic_loss_scaler.ipp"
#endif
