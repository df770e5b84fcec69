#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../../ops/number.hpp"
#include "../../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "cub.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "pack_sum.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

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

template <class A>
inline __device__ InspectSlice<A> const& values_of(InspectSlice<A> const& slice) {
    return slice;
}
template <class A>
inline __device__ InspectSlice<A> const& values_of(NormSlice<A> const& slice) {
    return slice.part;
}

/// @brief Adds consecutive chunks of one slice to the sums of the threads of the block. Their loads
/// run ahead over the borders of chunks.
template <class Sum, class A>
__device__ inline void add_chunks(InspectSlice<A> const& slice, unsigned first, unsigned count,
                                  Sum& sum) {
    std::size_t const begin = std::size_t{first} * chunk_elements;
    std::size_t const most = std::size_t{count} * chunk_elements;
    std::size_t const left = slice.elements - begin;
    A const* const values = slice.values + begin;
    for_packs(left < most ? left : most, are_aligned(values),
              SumOfPack<Sum, A>{values, slice.first_index + static_cast<long long>(begin), &sum});
    sum.end_chunks(count);
}

/// @brief Adds this block's share of the table, consecutive chunks, and calls `end_chunks(slice,
/// next, end)` after those that it added in one loop; the next chunk of the block is `next`, unless
/// that is its `end`.
template <class Sum, class Slice, class EndChunks>
__device__ inline void add_share(TableRange<Slice> const& table, Sum& sum,
                                 EndChunks const& end_chunks) {
    auto const count = static_cast<unsigned>(table.count); // 2^32 chunks are 2^45 elements
    unsigned const per_block = (count + gridDim.x - 1) / gridDim.x;
    unsigned const begin = blockIdx.x * per_block;
    unsigned const end = begin + per_block < count ? begin + per_block : count;
    for (unsigned i = begin; i < end;) { // keeps no slice, for want of registers
        Chunk const chunk = table.chunks[i];
        Slice const& slice = table.slices[chunk.slice];
        unsigned together =
            static_cast<unsigned>(chunks_of(values_of(slice).elements)) - chunk.index;
        together = together < end - i ? together : end - i;
        together = together < sum.room() ? together : sum.room();
        add_chunks(values_of(slice), chunk.index, together, sum);
        i += together;
        end_chunks(slice, i, end);
    }
}

/// @brief Adds all slices to one inspection. Each block writes once.
template <class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 4)
    inspect_kernel(TableRange<InspectSlice<A>> table, ops::Inspection* result) {
    using Sum = PackSum<NormKind::l2>;
    __shared__ typename Sum::Shared shared;
    Sum sum(shared);
    add_share(table, sum, [](InspectSlice<A> const&, unsigned, unsigned) {});
    sum.move_to(*result);
}

/// @brief Adds each slice to its own norm. Each block writes once for each norm of its share.
template <NormKind kind, class A>
ZERO_KERNEL void __launch_bounds__(block_threads, 4)
    norms_kernel(TableRange<NormSlice<A>> table, ops::NormSum* norms) {
    using Sum = std::conditional_t<kind == NormKind::infinity, PackMaximum, PackSum<kind>>;
    __shared__ typename Sum::Shared shared;
    Sum sum(shared);
    add_share(table, sum, [&](NormSlice<A> const& slice, unsigned next, unsigned end) {
        if (next == end || table.slices[table.chunks[next].slice].norm != slice.norm) {
            sum.move_to(norms[slice.norm]);
        }
    });
}

/// @brief Counts the zeros of one pack of a chunk.
template <class A>
struct CountOfPack {
    A const* values; ///< elements of the chunk
    unsigned* zeros; ///< count of the thread

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        A stored[pack_elements];
        load<whole>(values + index, count, stored);
        unsigned found = 0;
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            found += (whole || i < count) && ops::is_zero(stored[i]) ? 1U : 0U;
        }
        *zeros += found;
    }
};

/// @brief Adds the number of elements that are 0 or -0 to `count`. Each block takes several chunks
/// and adds once.
template <class A>
ZERO_KERNEL void __launch_bounds__(block_threads)
    count_zeros_kernel(TableRange<InspectSlice<A>> table, std::int64_t* count) {
    using Reduce = cub::BlockReduce<unsigned long long, block_threads>;
    __shared__ typename Reduce::TempStorage shared;
    unsigned long long all = 0;
    for (std::size_t i = blockIdx.x; i < table.count; i += gridDim.x) {
        Chunk const chunk = table.chunks[i];
        InspectSlice<A> const slice = table.slices[chunk.slice];
        A const* const values = slice.values + std::size_t{chunk.index} * chunk_elements;
        unsigned zeros = 0; // at most 8192, the elements of a chunk
        for_packs(elements_in(chunk, slice), are_aligned(values), CountOfPack<A>{values, &zeros});
        all += zeros;
    }
    all = Reduce(shared).Sum(all);
    if (threadIdx.x == 0 && all != 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(count), all);
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
