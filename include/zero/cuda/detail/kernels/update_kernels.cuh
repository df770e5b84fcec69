#pragma once

#include "../../../backend/update_decision.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "master_weight_access.cuh"
#include "optimizer_state_access.cuh"
#include "pack.cuh"

#include <cstddef>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Updates a pack in one pass: unscales, clips, runs the optimizer and rounds to the stored
/// types of weights and states.
template <class Optimizer, class A, class Weights, class States>
struct UpdatePack {
    static constexpr std::size_t states_kept = Optimizer::states == 0 ? 1 : Optimizer::states;

    A const* gradient;
    Weights weights;
    States states;
    float factor;
    typename Optimizer::Hyper hyper;
    std::size_t begin;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        std::size_t const at = begin + index;
        float gradients[pack_elements];
        float values[pack_elements];
        float state[states_kept][pack_elements];
        load_operands<whole>(gradient + at, count, gradients);
        weights.template load_weights<whole>(at, count, values);
        states.template load_states<whole>(at, count, state);
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            float own[states_kept];
#pragma unroll
            for (std::size_t s = 0; s != Optimizer::states; ++s) {
                own[s] = state[s][i];
            }
            Optimizer{}(ops::mul(gradients[i], factor), values[i], own, hyper);
#pragma unroll
            for (std::size_t s = 0; s != Optimizer::states; ++s) {
                state[s][i] = own[s];
            }
        }
        weights.template store_weights<whole>(at, count, values);
        states.template store_states<whole>(at, count, state);
    }
};

/// @brief Runs one optimizer step over the slices, one chunk per block, unless the decision is to
/// skip or to leave the slice.
template <class Optimizer, class Slice, class Group>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    update_kernel(TableRange<Slice> table, Group const* groups, UpdateDecision const* decision) {
    if (decision->skip) {
        return;
    }
    Chunk const chunk = table.chunks[blockIdx.x];
    Slice const& slice = table.slices[chunk.slice];
    Group const& group = groups[slice.group];
    if (is_left(group)) {
        return;
    }
    auto const weights = access(decided(slice.weights(), *decision));
    auto const states = access(slice.all_states(), decision->random_key);
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    std::size_t const elements = elements_in(chunk, slice);
    bool const is_aligned =
        are_aligned(slice.gradient) && weights.is_aligned() && states.is_aligned();
    using Gradient = std::remove_cvref_t<decltype(*slice.gradient)>;
    using Weights = std::remove_const_t<decltype(weights)>;
    using States = std::remove_const_t<decltype(states)>;
    UpdatePack<Optimizer, Gradient, Weights, States> const body{
        slice.gradient, weights, states, factor_of(group, *decision), group.hyper, begin};
    for_packs<Weights::is_all_packs && States::is_all_packs, States::needs_warp>(elements,
                                                                                 is_aligned, body);
}

/// @brief The updates of an optimizer of whole parameters. tensor_kernels.cuh defines it, which
/// includes CUB.
template <class Optimizer>
struct TensorUpdates;

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
