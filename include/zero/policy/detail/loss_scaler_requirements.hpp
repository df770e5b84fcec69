#pragma once

#include "../../core/detail/namespace.hpp"

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
