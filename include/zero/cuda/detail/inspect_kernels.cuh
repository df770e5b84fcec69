#pragma once

#include "../../backend/slices.hpp"
#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/norm.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "chunk_sizes.cuh"
#include "config.cuh"
#include "launch.cuh"
#include "leaf.cuh"
#include "pack.cuh"

#include <cstddef>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief Collects leaf sums of a thread until each of the eight threads of a leaf has one; then
/// all of them add at once.
class LeafQueue {
public:
    __device__ explicit LeafQueue(BlockSums& block) : _sum(block) {}

    __device__ void add(double leaf) {
        _waiting = threadIdx.x % leaf_lanes == _turn ? leaf : _waiting;
        if (++_turn == leaf_lanes) {
            flush_waiting();
        }
    }

    __device__ void flush() {
        flush_waiting();
        _sum.flush();
    }

private:
    __device__ void flush_waiting() {
        _sum.add(_waiting);
        _waiting = 0.0;
        _turn = 0;
    }

    ThreadSum _sum;
    double _waiting = 0.0;
    unsigned _turn = 0;
};

/// @brief Sums the leaves of one chunk. All threads of the block call it.
template <NormKind kind, class A>
__device__ inline void add_chunk(A const* values, std::size_t elements, long long first_index,
                                 LeafQueue& queue, BlockSums& block) {
    constexpr std::size_t warps = block_threads / 32;
    std::size_t const warp = threadIdx.x / 32;
    std::size_t const whole = are_aligned(values) ? elements / warp_elements : 0;
    std::size_t const lane_begin = threadIdx.x % 32 * pack_elements;
    std::size_t const leaf_begin = threadIdx.x % 32 / leaf_lanes * ops::leaf_elements;
    begin_main_loop();
    for (std::size_t unit = warp; unit < whole; unit += warps) {
        float x[pack_elements];
        load_floats<true>(values + unit * warp_elements + lane_begin, pack_elements, x);
        exchange_in_leaf(x);
        queue.add(take_leaf<kind>(
            x, first_index + static_cast<long long>(unit * warp_elements + leaf_begin), block));
    }
    end_main_loop();
    for (std::size_t unit = whole + warp; unit * warp_elements < elements; unit += warps) {
        std::size_t const begin = unit * warp_elements + leaf_begin;
        float x[pack_elements];
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            std::size_t const at = begin + i * leaf_lanes + threadIdx.x % leaf_lanes;
            x[i] = at < elements ? to_float(global(values)[at]) : 0.0F;
        }
        queue.add(take_leaf<kind>(x, first_index + static_cast<long long>(begin), block));
    }
}

/// @brief Adds all slices to one inspection. Each block takes several chunks and writes once.
template <class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    inspect_kernel(TableRange<InspectSlice<A>> table, ops::Inspection* result) {
    __shared__ BlockSums block;
    block.clear();
    LeafQueue queue(block);
    for (std::size_t i = blockIdx.x; i < table.count; i += gridDim.x) {
        Chunk const chunk = table.chunks[i];
        InspectSlice<A> const slice = table.slices[chunk.slice];
        std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
        add_chunk<NormKind::l2>(slice.values + begin, elements_in(chunk, slice),
                                slice.first_index + static_cast<long long>(begin), queue, block);
    }
    queue.flush();
    block.write_to(*result);
}

/// @brief Adds each slice to its own norm, one chunk per block.
template <NormKind kind, class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    norms_kernel(TableRange<NormSlice<A>> table, ops::NormSum* norms) {
    __shared__ BlockSums block;
    block.clear();
    Chunk const chunk = table.chunks[blockIdx.x];
    NormSlice<A> const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    std::size_t const elements = elements_in(chunk, slice.part);
    A const* const values = slice.part.values + begin;
    if constexpr (kind == NormKind::infinity) {
        ops::NormSum largest;
        for (std::size_t i = threadIdx.x; i < elements; i += block_threads) {
            largest.add_magnitude(to_float(global(values)[i]));
        }
        atomicMin(
            &block.first_non_finite,
            static_cast<long long>(largest.negative_largest)); // any integer of the block will do
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicMin(reinterpret_cast<long long*>(&norms[slice.norm].negative_largest),
                      block.first_non_finite);
        }
    } else {
        LeafQueue queue(block);
        add_chunk<kind>(values, elements, slice.part.first_index + static_cast<long long>(begin),
                        queue, block);
        queue.flush();
        block.write_to(norms[slice.norm].leaves);
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
