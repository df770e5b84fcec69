#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "run.hpp"
#include "scaled_update_loop.hpp"
#include "update_loop.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// @brief Whether the states have a scale per block: `ScaledStatePointers`.
template <class States>
inline constexpr bool has_scales = requires(States const& states) { states.scales; };

/// @brief Runs the update loop for the kind of states. Used by `host::update`.
template <class Optimizer, StorageType A, class Weights, class States>
void run_update(A const* gradient, Weights const& weights, States const& states, std::size_t n,
                float factor, typename Optimizer::Hyper const& hyper) noexcept {
    if constexpr (has_scales<States>) {
        run(ScaledUpdateLoop<Optimizer, A, Weights, States>{gradient, weights, states, n, factor,
                                                            hyper});
    } else {
        run(UpdateLoop<Optimizer, A, Weights, States>{gradient, weights, states, n, factor, hyper});
    }
}

} // namespace ZERO_NAMESPACE::host::detail
