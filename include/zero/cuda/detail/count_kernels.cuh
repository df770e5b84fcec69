#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/number.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "cub.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>
#include <cstdint>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

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

/// @brief Adds the counts of two threads.
struct AddCounts {
    __device__ unsigned long long operator()(unsigned long long a, unsigned long long b) const {
        return a + b;
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
    all = Reduce(shared).Reduce(all, AddCounts{});
    if (threadIdx.x == 0 && all != 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(count), all);
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
