#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief 2^-126: a smaller scale is subnormal, and the inverse of most of those is infinite.
inline constexpr float smallest_loss_scale = 0x1p-126F;

/// @brief A policy that owns the rule of the loss scale; its state lives in the backend's memory.
///
/// Beyond the syntax a model guarantees: `next` is pure, callable on host and device, and depends
/// on its arguments only; `overflow` was reduced over all ranks, so equal states stay equal; the
/// scale is positive, finite and bounded. `is_exhausted` says whether an overflow in this state can
/// not be answered by a smaller scale. With `skips_overflow` a step with non-finite gradients
/// changes nothing.
///
/// Optional: `static void add_to(Hash&, Options const&)` adds options that ranks have to agree on
/// (see `HasComparedOptions`), and `static void validate_state(State, Options const&)` refuses
/// states from elsewhere beyond those whose scale is no positive number.
template <class P>
concept LossScaler =
    std::same_as<typename P::policy_category, LossScalerCategory>
    && std::is_trivially_copyable_v<typename P::State>
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
    static_assert(has_types, "zero: a LossScaler needs member types 'State' (its trackers; kept in "
                             "the backend's memory) and 'Options'.");
    static_assert(
        requires { requires std::same_as<decltype(P::skips_overflow), bool const>; },
        "zero: a LossScaler needs 'static constexpr bool skips_overflow' (does a step with "
        "non-finite gradients change nothing?).");
    if constexpr (has_types) {
        using State = typename P::State;
        using Options = typename P::Options;
        static_assert(
            std::is_trivially_copyable_v<State> && requires(State s) {
                { s.scale } -> std::convertible_to<float>;
            }, "zero: the State of a LossScaler is trivially copyable and has a member 'float scale'.");
        static_assert(
            requires(Options const& o) {
                { P::initial(o) } -> std::same_as<State>;
            }, "zero: a LossScaler needs 'static State initial(Options const&)'.");
        static_assert(
            requires(State s, Options const& o) {
                { P::next(s, true, o) } noexcept -> std::same_as<State>;
            }, "zero: a LossScaler needs 'static State next(State, bool overflow, Options const&) "
               "noexcept'.");
        static_assert(
            requires(State s, Options const& o) {
                { P::is_exhausted(s, o) } noexcept -> std::same_as<bool>;
            },
            "zero: a LossScaler needs 'static bool is_exhausted(State, Options const&) noexcept'.");
        static_assert(
            requires(Options const& o) {
                { P::validate(o) } -> std::same_as<void>;
            }, "zero: a LossScaler needs 'static void validate(Options const&)' (throws "
               "InvalidArgument).");
    }
    return LossScaler<P>;
}

} // namespace ZERO_NAMESPACE
