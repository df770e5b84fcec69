#pragma once

#include "../backend/slices.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "detail/copy_loop.hpp"
#include "detail/master_weight_access.hpp"
#include "detail/update_loop.hpp"

#include <array>
#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::host {

/// @brief One step of `Optimizer` over n elements, in one pass. Used by `HostBackend::update`; the
/// guarantees of `kernels.hpp` hold.
///
/// The functor gets the gradient mul(float(gradient[i]), factor), the master weight as a float, and
/// the states as floats. The master weight becomes M(result) and, unless `parameter` is null, the
/// parameter becomes P(result): each is rounded once, from the same float. Each state is rounded
/// once as well: to its type, or with a scale (`ScaledStatePointers`) for each block of 64 elements
/// as `ops::state_scale` specifies. `StochasticStates` are rounded by `ops::round_stochastically`;
/// element i takes the random bits of `states.first_index + i` and `ops::state_random_key`. If
/// `parameter` is null, the parameter is its own master; then P must be M.
/// @tparam States `StatePointers`, `ScaledStatePointers`, or `StochasticStates` of either
template <class Optimizer, StorageType A, StorageType M, StorageType P, class States>
void update(A const* gradient, MasterPointers<M, P> const& weights, States const& states,
            std::size_t n, float factor, typename Optimizer::Hyper const& hyper) noexcept {
    using detail::MasterAccess;
    using detail::ParameterWrite;
    constexpr std::size_t element_bytes = sizeof(A) + 2 * sizeof(M) + sizeof(P)
                                          + 2 * Optimizer::states * sizeof(typename States::Type);
    if (weights.parameter == nullptr) {
        if constexpr (std::is_same_v<M, P>) {
            detail::run_update<Optimizer>(gradient,
                                          MasterAccess<M, P, ParameterWrite::none>{weights}, states,
                                          n, factor, hyper);
        }
        return;
    }
    // With scales each block would wait for its stores.
    if constexpr (!detail::has_scales<States>) {
        if (detail::is_worth_streaming(weights.parameter, n * element_bytes)) {
            detail::run_update<Optimizer>(gradient,
                                          MasterAccess<M, P, ParameterWrite::streamed>{weights},
                                          states, n, factor, hyper);
            return;
        }
    }
    detail::run_update<Optimizer>(gradient, MasterAccess<M, P, ParameterWrite::cached>{weights},
                                  states, n, factor, hyper);
}

/// @brief `update` of weights that are stored in parts. The result has the same bits as with a
/// float master and a bfloat16 parameter.
template <class Optimizer, StorageType A, class States>
void update(A const* gradient, SplitPointers const& weights, States const& states, std::size_t n,
            float factor, typename Optimizer::Hyper const& hyper) noexcept {
    detail::run_update<Optimizer>(gradient, detail::SplitAccess{weights}, states, n, factor, hyper);
}

/// @brief `update` of parameters that are their own masters and are rounded by
/// `ops::round_stochastically`.
///
/// Element i takes `ops::random_bits(weights.key, weights.first_index + i)`, so a range may be cut
/// anywhere.
template <class Optimizer, StorageType A, StorageType P, class States>
void update(A const* gradient, StochasticPointers<P> const& weights, States const& states,
            std::size_t n, float factor, typename Optimizer::Hyper const& hyper) noexcept {
    detail::run_update<Optimizer>(gradient, detail::StochasticAccess<P>{weights}, states, n, factor,
                                  hyper);
}

/// @brief `update` of plain arrays.
/// @param parameter null if the parameter is its own master; then P must be M
template <class Optimizer, StorageType A, StorageType M, StorageType P>
void update(A const* gradient, M* master, P* parameter,
            std::array<float*, Optimizer::states> const& states, std::size_t n, float factor,
            typename Optimizer::Hyper const& hyper) noexcept {
    update<Optimizer>(gradient, MasterPointers<M, P>{master, parameter},
                      StatePointers<Optimizer::states, float>{states}, n, factor, hyper);
}

} // namespace ZERO_NAMESPACE::host
