#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "optimizer_state.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief The requirements of `OptimizerStatePolicy`, one concept each. The concept and its
/// messages use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept OptimizerStateHasType = requires { typename P::Type; };

template <class P>
concept OptimizerStateHasScale = std::same_as<decltype(P::is_block_scaled), bool const>;

/// float and bfloat16 have the range that moments need; float16 and power8 need a scale.
template <class P>
concept StateTypeFitsScale =
    StateStorageType<typename P::Type>
    && P::is_block_scaled
           == (std::is_same_v<typename P::Type, float16> || sizeof(typename P::Type) == 1);

/// @brief Whether states are rounded stochastically. A policy that does not say so rounds to
/// nearest.
template <class P>
inline constexpr bool rounds_states_stochastically =
    requires { requires P::rounds_stochastically; };

/// @brief Whether the arguments of a shipped policy after the type name a rounding.
template <class P>
inline constexpr bool names_rounding = true;
template <class T, class... R>
inline constexpr bool names_rounding<OptimizerState<T, R...>> =
    sizeof...(R) == 0
    || (!std::is_same_v<T, float> && sizeof...(R) == 1 && sizeof(T) != 1
        && (std::is_same_v<R, RoundToNearest> && ...));
template <class T, class... R>
inline constexpr bool names_rounding<BlockScaledState<T, R...>> =
    names_rounding<OptimizerState<T, R...>>;

/// 16 bits are rounded in one of the two ways, 8 bits stochastically, and floats not at all.
template <class P>
concept StateRoundingFits =
    names_rounding<P>
    && !(rounds_states_stochastically<P> && std::is_same_v<typename P::Type, float>)&&(
        rounds_states_stochastically<P> || sizeof(typename P::Type) != 1);

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that selects the storage type of optimizer states, how they are rounded to it,
/// and whether each block of them has a scale.
template <class P>
concept OptimizerStatePolicy =
    std::same_as<typename P::policy_category, OptimizerStateCategory>
    && detail::OptimizerStateHasType<P> && detail::OptimizerStateHasScale<P>
    && detail::StateTypeFitsScale<P> && detail::StateRoundingFits<P>;

/// @brief Reports each reason why `P` is not an `OptimizerStatePolicy` as one error.
template <class P>
consteval bool diagnose_optimizer_state() {
    static_assert(
        detail::OptimizerStateHasType<P>,
        "zero: an OptimizerState policy needs a member type 'Type' (what a state is stored in).");
    static_assert(detail::OptimizerStateHasScale<P>,
                  "zero: an OptimizerState policy needs 'static constexpr bool "
                  "is_block_scaled' (does each block of 64 have a scale?).");
    if constexpr (detail::OptimizerStateHasType<P> && detail::OptimizerStateHasScale<P>) {
        static_assert(!P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: BlockScaledState is for float16 and power8, whose range moments "
                      "exceed; write zero::BlockScaledState<zero::float16> or "
                      "zero::BlockScaledState<zero::power8>, or "
                      "zero::OptimizerState<T> for float and bfloat16.");
        static_assert(P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: states of an optimizer are float or bfloat16, or float16 or "
                      "power8 with a scale, without which second moments vanish; write "
                      "zero::OptimizerState<float>, zero::OptimizerState<zero::bfloat16>, "
                      "zero::BlockScaledState<zero::float16> or "
                      "zero::BlockScaledState<zero::power8>.");
        static_assert(!detail::StateTypeFitsScale<P> || sizeof(typename P::Type) != 1
                          || detail::StateRoundingFits<P>,
                      "zero: states in 8 bits are rounded stochastically, because to nearest a "
                      "second moment would never shrink; write "
                      "zero::BlockScaledState<zero::power8>.");
        static_assert(!detail::StateTypeFitsScale<P> || sizeof(typename P::Type) == 1
                          || detail::StateRoundingFits<P>,
                      "zero: states in 16 bits are rounded stochastically, or to nearest with the "
                      "second argument zero::RoundToNearest, and float states are not rounded; "
                      "write zero::OptimizerState<zero::bfloat16, zero::RoundToNearest>, or "
                      "leave the second argument out.");
    }
    return OptimizerStatePolicy<P>;
}

} // namespace ZERO_NAMESPACE
