#pragma once

#include "../core/error.hpp"
#include "../core/policy_category.hpp"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zero {

/// @brief A policy that owns the rule of the loss scale; its state lives in the backend's memory.
///
/// Beyond the syntax a model guarantees: `next` is pure, callable on host and device, and depends on its arguments only; `overflow` was
/// reduced over all ranks, so equal states stay equal; the scale is positive, finite and bounded. `is_exhausted` says whether an overflow
/// in this state can not be answered by a smaller scale. With `skips_overflow` a step with non-finite gradients changes nothing.
template <class P>
concept LossScaler = std::same_as<typename P::policy_category, LossScalerCategory> && std::is_trivially_copyable_v<typename P::State>
                  && std::same_as<decltype(P::skips_overflow), bool const>
                  && requires(typename P::State state, typename P::Options const& options, bool overflow) {
                         { P::initial(options) } -> std::same_as<typename P::State>;
                         { P::next(state, overflow, options) } noexcept -> std::same_as<typename P::State>;
                         { P::is_exhausted(state, options) } noexcept -> std::same_as<bool>;
                         { P::validate(options) } -> std::same_as<void>;
                         { state.scale } -> std::convertible_to<float>;
                     };

/// @brief Reports each reason why `P` is not a `LossScaler` as one error.
template <class P>
consteval bool diagnose_loss_scaler() {
    constexpr bool has_types = requires {
        typename P::State;
        typename P::Options;
    };
    static_assert(has_types, "zero: a LossScaler needs member types 'State' (its trackers; kept in the backend's memory) and 'Options'.");
    static_assert(requires { requires std::same_as<decltype(P::skips_overflow), bool const>; },
                  "zero: a LossScaler needs 'static constexpr bool skips_overflow' (does a step with non-finite gradients change nothing?).");
    if constexpr (has_types) {
        using State = typename P::State;
        using Options = typename P::Options;
        static_assert(std::is_trivially_copyable_v<State> && requires(State s) { { s.scale } -> std::convertible_to<float>; },
                      "zero: the State of a LossScaler is trivially copyable and has a member 'float scale'.");
        static_assert(requires(Options const& o) { { P::initial(o) } -> std::same_as<State>; }, "zero: a LossScaler needs 'static State initial(Options const&)'.");
        static_assert(requires(State s, Options const& o) { { P::next(s, true, o) } noexcept -> std::same_as<State>; },
                      "zero: a LossScaler needs 'static State next(State, bool overflow, Options const&) noexcept'.");
        static_assert(requires(State s, Options const& o) { { P::is_exhausted(s, o) } noexcept -> std::same_as<bool>; },
                      "zero: a LossScaler needs 'static bool is_exhausted(State, Options const&) noexcept'.");
        static_assert(requires(Options const& o) { { P::validate(o) } -> std::same_as<void>; },
                      "zero: a LossScaler needs 'static void validate(Options const&)' (throws InvalidArgument).");
    }
    return LossScaler<P>;
}

namespace detail {

inline void require_scale(float value, char const* name) {
    if (!(value > 0.0F) || !std::isfinite(value)) {
        throw InvalidArgument(std::string("zero: the loss scaler's ") + name + " is " + std::to_string(value) + "; it has to be positive and finite.");
    }
}

} // namespace detail

struct NoLossScalerOptions {};

/// @brief Scale 1. What happens with non-finite gradients is the engine's option `non_finite`.
struct NoLossScaler {
    using policy_category = LossScalerCategory;
    using Options = NoLossScalerOptions;
    struct State {
        float scale = 1.0F;
    };
    static constexpr bool skips_overflow = false;

    static void validate(Options const&) {}
    static State initial(Options const&) noexcept { return {}; }
    static State next(State state, bool /*overflow*/, Options const&) noexcept { return state; }
    static bool is_exhausted(State, Options const&) noexcept { return false; }
};
static_assert(LossScaler<NoLossScaler>);

struct StaticLossScalerOptions {
    float scale = 65536.0F; ///< positive, finite
};

/// @brief A fixed scale; a step with non-finite gradients is skipped.
struct StaticLossScaler {
    using policy_category = LossScalerCategory;
    using Options = StaticLossScalerOptions;
    struct State {
        float scale = 1.0F;
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options) { detail::require_scale(options.scale, "scale"); }
    static State initial(Options const& options) noexcept { return {options.scale}; }
    static State next(State state, bool /*overflow*/, Options const&) noexcept { return state; }
    static bool is_exhausted(State, Options const&) noexcept { return false; }
};
static_assert(LossScaler<StaticLossScaler>);

/// @brief What an overflow at the minimum scale does.
enum class AtMinimumScale : std::uint8_t {
    hold,       ///< stay at the minimum; the step is skipped
    throw_error,///< `step` waits for the decision and throws LossScaleExhausted
    call_back   ///< `step` waits for the decision and calls `on_minimum`
};

struct DynamicLossScalerOptions {
    float initial_scale = 65536.0F;
    float growth_factor = 2.0F;         ///< > 1
    float backoff_factor = 0.5F;        ///< in (0, 1)
    std::uint32_t growth_interval = 1000; ///< clean steps in a row before the scale grows; at least 1
    std::uint32_t hysteresis = 2;       ///< overflows until the first reduction; at least 1
    bool consecutive_hysteresis = false;///< restore the hysteresis on every clean step instead of on growth only
    float minimum = 1.0F;
    float maximum = 16777216.0F;        ///< the scale never exceeds it (2^24)
    AtMinimumScale at_minimum = AtMinimumScale::hold;
    void (*on_minimum)(void* context) = nullptr;
    void* context = nullptr;
};

/// @brief Grows after an interval of clean steps and shrinks on overflows; a step that overflowed is skipped.
///
/// On an overflow the hysteresis counts down first; once it is used up, every overflow shrinks the scale until the next growth.
/// (Micikevicius et al., Mixed Precision Training, 2018, section 3.2; the hysteresis as in Megatron-LM.)
struct DynamicLossScaler {
    using policy_category = LossScalerCategory;
    using Options = DynamicLossScalerOptions;
    struct State {
        float scale = 1.0F;
        std::uint32_t clean_steps = 0;
        std::uint32_t hysteresis_left = 1;
    };
    static constexpr bool skips_overflow = true;

    static void validate(Options const& options) {
        detail::require_scale(options.initial_scale, "initial_scale");
        detail::require_scale(options.minimum, "minimum");
        detail::require_scale(options.maximum, "maximum");
        require(options.minimum <= options.initial_scale && options.initial_scale <= options.maximum, "initial_scale lies outside minimum..maximum");
        require(options.growth_factor > 1.0F && std::isfinite(options.growth_factor), "growth_factor has to be above 1");
        require(options.backoff_factor > 0.0F && options.backoff_factor < 1.0F, "backoff_factor has to lie between 0 and 1");
        require(options.growth_interval >= 1, "growth_interval has to be at least 1");
        require(options.hysteresis >= 1, "hysteresis has to be at least 1");
        require(options.at_minimum != AtMinimumScale::call_back || options.on_minimum != nullptr, "at_minimum asks for a call, but on_minimum is null");
    }

    static State initial(Options const& options) noexcept { return {options.initial_scale, 0, options.hysteresis}; }

    static State next(State state, bool overflow, Options const& options) noexcept {
        if (overflow) {
            state.clean_steps = 0;
            if (state.hysteresis_left > 1) {
                --state.hysteresis_left;
            } else {
                float const smaller = state.scale * options.backoff_factor;
                state.scale = smaller < options.minimum ? options.minimum : smaller;
            }
            return state;
        }
        if (options.consecutive_hysteresis) {
            state.hysteresis_left = options.hysteresis;
        }
        if (++state.clean_steps == options.growth_interval) {
            float const larger = state.scale * options.growth_factor;
            state.scale = larger > options.maximum ? options.maximum : larger;
            state.clean_steps = 0;
            state.hysteresis_left = options.hysteresis;
        }
        return state;
    }

    /// @brief An overflow now would leave the scale where it is, at its minimum.
    static bool is_exhausted(State state, Options const& options) noexcept { return state.hysteresis_left <= 1 && state.scale <= options.minimum; }

private:
    static void require(bool holds, char const* what) {
        if (!holds) {
            throw InvalidArgument(std::string("zero: the dynamic loss scaler's ") + what + '.');
        }
    }
};
static_assert(LossScaler<DynamicLossScaler>);

} // namespace zero
