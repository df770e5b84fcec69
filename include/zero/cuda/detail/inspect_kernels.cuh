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
#include "exact_sum.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief Adds one pack of a chunk to the sum of its thread.
template <NormKind kind, class A>
struct SumOfPack {
    A const* values;       ///< of the chunk
    long long first_index; ///< of the chunk
    PackSum<kind>* sum;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float x[pack_elements];
        load_floats<whole>(values + index, count, x);
        sum->add(x, first_index + static_cast<long long>(index));
    }
};

/// @brief Adds the elements of one chunk to the sums of the threads of the block.
template <NormKind kind, class A>
__device__ inline void add_chunk(A const* values, std::size_t elements, long long first_index,
                                 PackSum<kind>& sum) {
    for_packs(elements, are_aligned(values), SumOfPack<kind, A>{values, first_index, &sum});
}

/// @brief Adds all slices to one inspection. Each block takes several chunks and writes once.
template <class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    inspect_kernel(TableRange<InspectSlice<A>> table, ops::Inspection* result) {
    __shared__ BlockSums block;
    block.clear();
    PackSum<NormKind::l2> sum(block);
    for (std::size_t i = blockIdx.x; i < table.count; i += gridDim.x) {
        Chunk const chunk = table.chunks[i];
        InspectSlice<A> const slice = table.slices[chunk.slice];
        std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
        add_chunk(slice.values + begin, elements_in(chunk, slice),
                  slice.first_index + static_cast<long long>(begin), sum);
    }
    sum.flush();
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
        PackSum<kind> sum(block);
        add_chunk(values, elements, slice.part.first_index + static_cast<long long>(begin), sum);
        sum.flush();
        block.write_to(norms[slice.norm].exact);
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
