#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/norm.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "chunk_sizes.cuh"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "pack_sum.cuh"

#include <cstddef>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief Adds one pack of a chunk to the sum of its thread.
template <class Sum, class A>
struct SumOfPack {
    A const* values;       ///< elements of the chunk
    long long first_index; ///< index of the first of them
    Sum* sum;

    /// A pack of 16-bit numbers is one load of 16 bytes, too little in flight for the memory.
    static constexpr bool loads_ahead = sizeof(A) == 2;
    __device__ Pack<A> load(std::size_t index) const { return Pack<A>::load(values + index); }
    __device__ void add(Pack<A> const& pack, std::size_t index) const {
        float x[pack_elements];
        operands_of(pack, x);
        sum->template add<1>(x, first_index + static_cast<long long>(index));
    }

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float x[pack_elements];
        load_operands<whole>(values + index, count, x);
        sum->template add<stride<whole>>(x, first_index + static_cast<long long>(index));
    }
};

/// @brief Adds the elements of one chunk to the sums of the threads of the block.
template <class Sum, class A>
__device__ inline void add_chunk(Chunk const& chunk, InspectSlice<A> const& slice, Sum& sum) {
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    A const* const values = slice.values + begin;
    for_packs(elements_in(chunk, slice), are_aligned(values),
              SumOfPack<Sum, A>{values, slice.first_index + static_cast<long long>(begin), &sum});
    sum.end_chunk();
}

/// @brief Adds all slices to one inspection. Each block takes several chunks and writes once.
template <class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 4)
    inspect_kernel(TableRange<InspectSlice<A>> table, ops::Inspection* result) {
    using Sum = PackSum<NormKind::l2>;
    __shared__ typename Sum::Shared shared;
    Sum sum(shared);
    auto const count = static_cast<unsigned>(table.count); // 2^32 chunks are 2^45 elements
    for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
        Chunk const chunk = table.chunks[i];
        add_chunk(chunk, table.slices[chunk.slice], sum);
    }
    sum.move_to(*result);
}

/// @brief Adds each slice to its own norm. Each block takes consecutive chunks and writes once for
/// each norm among them.
template <NormKind kind, class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 4)
    norms_kernel(TableRange<NormSlice<A>> table, ops::NormSum* norms) {
    using Sum = std::conditional_t<kind == NormKind::infinity, PackMaximum, PackSum<kind>>;
    __shared__ typename Sum::Shared shared;
    Sum sum(shared);
    auto const count = static_cast<unsigned>(table.count); // 2^32 chunks are 2^45 elements
    unsigned const per_block = (count + gridDim.x - 1) / gridDim.x;
    unsigned const begin = blockIdx.x * per_block;
    unsigned const end = begin + per_block < count ? begin + per_block : count;
    for (unsigned i = begin; i < end; ++i) {
        Chunk const chunk = table.chunks[i];
        NormSlice<A> const slice = table.slices[chunk.slice];
        add_chunk(chunk, slice.part, sum);
        if (i + 1 == end || table.slices[table.chunks[i + 1].slice].norm != slice.norm) {
            sum.move_to(norms[slice.norm]);
        }
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
