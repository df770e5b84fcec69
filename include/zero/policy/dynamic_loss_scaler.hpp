#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/host_device.hpp"
#include "detail/require_scale.hpp"
#include "loss_scaler.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief What an overflow at the minimum scale does.
enum class AtMinimumScale : std::uint8_t {
    hold,        ///< stay at the minimum; the step is skipped
    throw_error, ///< `step` waits for the decision and throws LossScaleExhausted
    call_back    ///< `step` waits for the decision and calls `on_minimum`
};

/// @brief What growth does that would exceed the maximum scale.
enum class AtMaximumScale : std::uint8_t {
    clamp, ///< the scale becomes the maximum
    hold   ///< the scale stays where it is; the count of clean steps starts anew
};

/// @brief Other systems' rules are in `loss_scaler_presets.hpp`.
struct DynamicLossScalerOptions {
    float initial_scale = 65536.0F; ///< from `minimum` to `maximum`
    float growth_factor = 2.0F;     ///< > 1
    float backoff_factor = 0.5F;    ///< in (0, 1)
    std::uint32_t growth_interval =
        1000; ///< clean steps in a row before the scale grows; at least 1
    std::uint32_t growth_delay =
        0; ///< so many more clean steps before the first growth after the start or an overflow
    std::uint32_t hysteresis = 2; ///< overflows until the first reduction; at least 1
    bool consecutive_hysteresis =
        false;            ///< restore the hysteresis on every clean step instead of on growth only
    float minimum = 1.0F; ///< at least 2^-126, so that the inverse is finite
    float maximum = 16777216.0F;                       ///< the scale never exceeds it (2^24)
    AtMaximumScale at_maximum = AtMaximumScale::clamp; ///< what growth beyond it does
    AtMinimumScale at_minimum = AtMinimumScale::hold;  ///< what an overflow there does
    void (*on_minimum)(void* context) = nullptr;       ///< only for AtMinimumScale::call_back
    void* context = nullptr;                           ///< handed to `on_minimum`
};

/// @brief Grows after an interval of clean steps and shrinks on overflows; a step that overflowed
/// is skipped.
///
/// On an overflow the hysteresis counts down first; once it is used up, every overflow shrinks the
/// scale until the next growth. (Micikevicius et al., Mixed Precision Training, 2018, section 3.2;
/// the hysteresis as in Megatron-LM.)
struct DynamicLossScaler {
    using policy_category = LossScalerCategory;
    using Options = DynamicLossScalerOptions;
    struct State {
        float scale = 1.0F;
        std::uint32_t clean_steps = 0;     ///< in a row, towards the next growth
        std::uint32_t hysteresis_left = 1; ///< overflows until the next reduction
        std::uint32_t delay_left = 0;      ///< clean steps that do not count yet
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options) {
        detail::require_scale(options.initial_scale, "initial_scale");
        detail::require_scale(options.minimum, "minimum");
        detail::require_scale(options.maximum, "maximum");
        if (options.initial_scale < options.minimum || options.initial_scale > options.maximum) {
            detail::throw_error<InvalidArgument>(
                {"zero: the dynamic loss scaler's initial_scale ", options.initial_scale,
                 " lies outside minimum..maximum, ", options.minimum, "..", options.maximum,
                 "; give another one, or wider bounds."});
        }
        require(options.growth_factor > 1.0F && detail::is_finite(options.growth_factor),
                "growth_factor must be above 1");
        require(options.backoff_factor > 0.0F && options.backoff_factor < 1.0F,
                "backoff_factor has to lie between 0 and 1");
        require(options.growth_interval >= 1, "growth_interval must be at least 1");
        require(options.hysteresis >= 1, "hysteresis must be at least 1");
        require(options.at_minimum != AtMinimumScale::call_back || options.on_minimum != nullptr,
                "at_minimum asks for a call, but on_minimum is null");
        require(options.at_minimum == AtMinimumScale::call_back
                    || (options.on_minimum == nullptr && options.context == nullptr),
                "on_minimum and context would be ignored; set at_minimum to call_back, or leave "
                "them out");
    }

    /// @brief Refuses a state from elsewhere that the rule cannot go on from. @throws
    /// InvalidArgument
    static void validate_state(State state, Options const& options) {
        if (state.scale < options.minimum || state.scale > options.maximum) {
            detail::throw_error<InvalidArgument>(
                {"zero: the loss scale ", state.scale,
                 " lies outside minimum..maximum of the dynamic loss scaler, ", options.minimum,
                 "..", options.maximum, "; give another one, or wider bounds."});
        }
    }

    /// @brief Adds what ranks have to agree on; what one of them does on a call is its own affair.
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add(double{options.initial_scale})
            .add(double{options.growth_factor})
            .add(double{options.backoff_factor});
        hash.add(options.growth_interval)
            .add(options.growth_delay)
            .add(options.hysteresis)
            .add(options.consecutive_hysteresis);
        hash.add(double{options.minimum})
            .add(double{options.maximum})
            .add(options.at_maximum)
            .add(options.at_minimum);
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
                float const smaller = ops::mul(state.scale, options.backoff_factor);
                state.scale = smaller < options.minimum ? options.minimum : smaller;
            }
            return state;
        }
        if (options.consecutive_hysteresis) {
            state.hysteresis_left = options.hysteresis;
        }
        if (state.delay_left > 0) {
            --state.delay_left;
        } else if (++state.clean_steps
                   >= options.growth_interval) { // beyond it only in a state from elsewhere
            float const larger = ops::mul(state.scale, options.growth_factor);
            float const most =
                options.at_maximum == AtMaximumScale::clamp ? options.maximum : state.scale;
            state.scale = larger > options.maximum ? most : larger;
            state.clean_steps = 0;
            state.hysteresis_left = options.hysteresis;
        }
        return state;
    }

    /// @brief An overflow now would leave the scale where it is, at its minimum.
    ZERO_HOST_DEVICE static bool is_exhausted(State state, Options const& options) noexcept {
        return state.hysteresis_left <= 1 && state.scale <= options.minimum;
    }

private:
    static void require(bool holds, char const* what) {
        if (!holds) {
            detail::throw_error<InvalidArgument>({"zero: the dynamic loss scaler's ", what, '.'});
        }
    }
};
static_assert(LossScaler<DynamicLossScaler>);

} // namespace ZERO_NAMESPACE
