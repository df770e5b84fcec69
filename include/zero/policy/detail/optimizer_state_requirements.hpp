#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../optimizer_state.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief The requirements of `OptimizerStatePolicy`, one concept each. The concept and its
/// messages use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept OptimizerStateHasOptions = requires { typename P::Options; };

template <class P>
concept OptimizerStateHasType = requires { typename P::Type; };

template <class P>
concept OptimizerStateHasScale = std::same_as<decltype(P::is_block_scaled), bool const>;

/// float and bfloat16 have the range that moments need; float16 needs a scale.
template <class P>
concept StateTypeFitsScale = StorageType<typename P::Type>
                             && P::is_block_scaled == std::is_same_v<typename P::Type, float16>;

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
    || (!std::is_same_v<T, float> && sizeof...(R) == 1
        && (std::is_same_v<R, RoundToNearest> && ...));
template <class T, class... R>
inline constexpr bool names_rounding<BlockScaledState<T, R...>> =
    names_rounding<OptimizerState<T, R...>>;

/// 16 bits are rounded in one of the two ways, and floats not at all.
template <class P>
concept StateRoundingFits =
    names_rounding<P>
    && !(rounds_states_stochastically<P> && std::is_same_v<typename P::Type, float>);

} // namespace ZERO_NAMESPACE::detail
