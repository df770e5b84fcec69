#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief The requirements of `LossScaler`, one concept each. The concept and its messages use
/// them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept LossScalerHasTypes = requires {
    typename P::State;
    typename P::Options;
};

template <class P>
concept LossScalerHasSkipsOverflow = std::same_as<decltype(P::skips_overflow), bool const>;

template <class P>
concept LossScalerStateHasScale =
    std::is_trivially_copyable_v<typename P::State> && requires(typename P::State state) {
        { state.scale } -> std::convertible_to<float>;
    };

template <class P>
concept LossScalerHasInitial = requires(typename P::Options const& options) {
    { P::initial(options) } -> std::same_as<typename P::State>;
};

template <class P>
concept LossScalerHasNext =
    requires(typename P::State state, bool overflow, typename P::Options const& options) {
        { P::next(state, overflow, options) } noexcept -> std::same_as<typename P::State>;
    };

template <class P>
concept LossScalerHasIsExhausted =
    requires(typename P::State state, typename P::Options const& options) {
        { P::is_exhausted(state, options) } noexcept -> std::same_as<bool>;
    };

template <class P>
concept LossScalerHasValidate = requires(typename P::Options const& options) {
    { P::validate(options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief 2^-126, the smallest normal float. The inverse of most smaller scales is infinite.
inline constexpr float smallest_loss_scale = 0x1p-126F;

/// @brief A policy that defines the rule of the loss scale. Its state is in the backend's memory.
///
/// Beyond the syntax, a model guarantees:
/// - `next` is pure, callable on host and device, and depends only on its arguments. `overflow` is
///   reduced over all ranks, so equal states stay equal.
/// - The scale is positive, finite and bounded.
/// - `is_exhausted` is true if an overflow in this state cannot reduce the scale.
/// - With `skips_overflow`, a step with non-finite gradients changes nothing.
///
/// Optional: `static void add_to(Hash&, Options const&)` adds the options that must be equal on all
/// ranks (see `HasComparedOptions`). `static void validate_state(State, Options const&)` rejects
/// states that the caller passes; states whose scale is not a positive normal number are always
/// rejected.
template <class P>
concept LossScaler =
    std::same_as<typename P::policy_category, LossScalerCategory> && detail::LossScalerHasTypes<P>
    && detail::LossScalerHasSkipsOverflow<P> && detail::LossScalerStateHasScale<P>
    && detail::LossScalerHasInitial<P> && detail::LossScalerHasNext<P>
    && detail::LossScalerHasIsExhausted<P> && detail::LossScalerHasValidate<P>;

/// @brief Reports each reason why `P` is not a `LossScaler` as one error.
template <class P>
consteval bool diagnose_loss_scaler() {
    static_assert(detail::LossScalerHasTypes<P>,
                  "zero: a LossScaler needs member types 'State' (its trackers; kept in "
                  "the backend's memory) and 'Options'.");
    static_assert(detail::LossScalerHasSkipsOverflow<P>,
                  "zero: a LossScaler needs 'static constexpr bool skips_overflow' (does a step "
                  "with non-finite gradients change nothing?).");
    if constexpr (detail::LossScalerHasTypes<P>) {
        static_assert(
            detail::LossScalerStateHasScale<P>,
            "zero: the State of a LossScaler is trivially copyable and has a member 'float "
            "scale'.");
        static_assert(detail::LossScalerHasInitial<P>,
                      "zero: a LossScaler needs 'static State initial(Options const&)'.");
        static_assert(detail::LossScalerHasNext<P>,
                      "zero: a LossScaler needs 'static State next(State, bool overflow, Options "
                      "const&) noexcept'.");
        static_assert(
            detail::LossScalerHasIsExhausted<P>,
            "zero: a LossScaler needs 'static bool is_exhausted(State, Options const&) noexcept'.");
        static_assert(detail::LossScalerHasValidate<P>,
                      "zero: a LossScaler needs 'static void validate(Options const&)' (throws "
                      "InvalidArgument).");
    }
    return LossScaler<P>;
}

} // namespace ZERO_NAMESPACE
