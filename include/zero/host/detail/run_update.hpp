#pragma once

#include "../../backend/state_pointers.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "run.hpp"
#include "scaled_update_loop.hpp"
#include "update_loop.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// @brief Runs the update loop for the kind of states: `StatePointers` or `ScaledStatePointers`.
/// Used by `host::update`.
template <class Optimizer, StorageType A, class Weights, StorageType S>
void run_update(A const* gradient, Weights const& weights,
                StatePointers<Optimizer::states, S> const& states, std::size_t n, float factor,
                typename Optimizer::Hyper const& hyper) noexcept {
    run(UpdateLoop<Optimizer, A, Weights, S>{gradient, weights, states.states, n, factor, hyper});
}

/// @copydoc run_update
template <class Optimizer, StorageType A, class Weights>
void run_update(A const* gradient, Weights const& weights,
                ScaledStatePointers<Optimizer::states> const& states, std::size_t n, float factor,
                typename Optimizer::Hyper const& hyper) noexcept {
    run(ScaledUpdateLoop<Optimizer, A, Weights>{gradient, weights, states, n, factor, hyper});
}

/// @brief Whether a large update may bypass the caches: the states must be written in the order of
/// the elements, as the other arrays are.
template <class States>
inline constexpr bool may_stream = true;

/// @brief False: each block would wait for its stores.
template <std::size_t n>
inline constexpr bool may_stream<ScaledStatePointers<n>> = false;

} // namespace ZERO_NAMESPACE::host::detail
