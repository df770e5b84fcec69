#pragma once

#include "../backend/state_pointers.hpp"
#include "../backend/weight_pointers.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/norm.hpp"
#include "detail/cast_loops.hpp"
#include "detail/copy_loop.hpp"
#include "detail/inspect_loop.hpp"
#include "detail/master_weight_access.hpp"
#include "detail/norm_loops.hpp"
#include "detail/run.hpp"
#include "detail/scaled_update_loop.hpp"
#include "detail/streaming.hpp"
#include "detail/sum_loop.hpp"
#include "detail/update_loop.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The loops of the host backend. All of them run at once in the calling thread, accept any number
/// of elements and any alignment, and give the same bits with every instruction set and compiler.
/// Arithmetic is in float; a result is rounded once to its storage type. A NaN that arithmetic
/// gives is always the quiet one with the bits 0x7fc00000; subnormal numbers are ordinary numbers.
namespace ZERO_NAMESPACE::host {

namespace detail {

/// One of the conversions, or copies, of an operation that moves so many bytes in all.
template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor,
             std::size_t moved_bytes) noexcept {
    if constexpr (std::is_same_v<To, From>) {
        if (factor == 1.0F) {
            if (n != 0 && out != in) {
                copy(static_cast<void*>(out), in, n * sizeof(To), moved_bytes);
            }
            return;
        }
    }
    bool const streams = moved_bytes >= streaming_copy_bytes && static_cast<void const*>(out) != in;
    if (factor != 1.0F && streams) {
        run(ConvertLoop<To, From, true, true>{out, in, n, factor});
    } else if (factor != 1.0F) {
        run(ConvertLoop<To, From, true, false>{out, in, n, factor});
    } else if (streams) {
        run(ConvertLoop<To, From, false, true>{out, in, n, factor});
    } else {
        run(ConvertLoop<To, From, false, false>{out, in, n, factor});
    }
}

} // namespace detail

/// @brief out[i] = To(float(in[i]) * factor). A factor of 1 multiplies nothing: the values are only
/// converted, or copied.
///
/// `out` may be `in` itself if the types are the same; otherwise the ranges must not overlap.
template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor) noexcept {
    detail::convert(out, in, n, factor, n * (sizeof(To) + sizeof(From)));
}

/// @brief sum[i] = To(float(sum[i]) + float(in[i])).
template <StorageType To, StorageType From>
void accumulate(To* sum, From const* in, std::size_t n) noexcept {
    detail::run(detail::AccumulateLoop<To, From>{sum, in, n});
}

/// @brief out[i] = T(((x0 + x1) + x2) + ...), where xr = float(peers[r][i]): in rank order, rounded
/// to the storage type once, at the end.
///
/// @param world at least 1; the sum over one rank is a copy.
/// `out` may be one of the peers.
template <StorageType T>
void sum_ranks(T* out, T const* const* peers, int world, std::size_t n) noexcept {
    if (world == 1) {
        convert(out, peers[0], n, 1.0F);
        return;
    }
    bool streams =
        detail::is_worth_streaming(out, (static_cast<std::size_t>(world) + 1) * n * sizeof(T));
    for (int rank = 0; rank < world; ++rank) {
        streams = streams && out != peers[rank];
    }
    if (streams) {
        detail::run(detail::SumRanksLoop<T, true>{out, peers, world, n});
    } else {
        detail::run(detail::SumRanksLoop<T, false>{out, peers, world, n});
    }
}

/// @brief Adds the values to `result`: leaves begin at `values[0]` and at every 64th element after
/// it, the last one may be short.
///
/// @param first_index the index of `values[0]` in what `result` counts, for `first_non_finite`.
template <StorageType T>
void inspect(T const* values, std::size_t n, std::int64_t first_index,
             ops::Inspection& result) noexcept {
    detail::run(detail::InspectLoop<T>{values, n, first_index, &result});
}

/// @brief Adds the values to what a norm is made of; leaves as for `inspect`.
template <StorageType T>
void add_to_norm(NormKind kind, T const* values, std::size_t n, std::int64_t first_index,
                 ops::NormSum& result) noexcept {
    switch (kind) {
    case NormKind::l1: detail::add_magnitudes(values, n, first_index, result.leaves); break;
    case NormKind::l2: inspect(values, n, first_index, result.leaves); break;
    case NormKind::infinity: detail::find_largest(values, n, result); break;
    }
}

namespace detail {

template <class Optimizer, StorageType A, class Weights, StorageType S>
void run_update(A const* gradient, Weights const& weights,
                StatePointers<Optimizer::states, S> const& states, std::size_t n, float factor,
                typename Optimizer::Hyper const& hyper) noexcept {
    run(UpdateLoop<Optimizer, A, Weights, S>{gradient, weights, states.states, n, factor, hyper});
}

template <class Optimizer, StorageType A, class Weights>
void run_update(A const* gradient, Weights const& weights,
                ScaledStatePointers<Optimizer::states> const& states, std::size_t n, float factor,
                typename Optimizer::Hyper const& hyper) noexcept {
    run(ScaledUpdateLoop<Optimizer, A, Weights>{gradient, weights, states, n, factor, hyper});
}

/// Whether the states are written in the order of the elements, as the other arrays are: then a
/// large update may write past the caches.
template <class States>
inline constexpr bool may_stream = true;
template <std::size_t n>
inline constexpr bool may_stream<ScaledStatePointers<n>> =
    false; // each block would wait for its stores

} // namespace detail

/// @brief One step of `Optimizer` over n elements, in one pass.
///
/// The functor gets the gradient mul(float(gradient[i]), factor), the master weight as a float, and
/// the states as floats; then the master weight becomes M(result) and, unless `parameter` is null,
/// the parameter becomes P(result): each is rounded once, from the same float. So is each state: to
/// its type, or with a scale (`ScaledStatePointers`) for each block of 64 elements as
/// `ops::block_scale` says. If there is no `parameter`, the parameter is its own master; then P
/// must be M.
/// @tparam States `StatePointers` or `ScaledStatePointers`
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
    if constexpr (detail::may_stream<States>) {
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

/// @brief `update` of weights that are stored in parts: bit for bit the same as with a float master
/// and a bfloat16 parameter.
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
/// @param parameter null if the parameter is its own master; then P must be M.
template <class Optimizer, StorageType A, StorageType M, StorageType P>
void update(A const* gradient, M* master, P* parameter,
            std::array<float*, Optimizer::states> const& states, std::size_t n, float factor,
            typename Optimizer::Hyper const& hyper) noexcept {
    update<Optimizer>(gradient, MasterPointers<M, P>{master, parameter},
                      StatePointers<Optimizer::states, float>{states}, n, factor, hyper);
}

} // namespace ZERO_NAMESPACE::host
