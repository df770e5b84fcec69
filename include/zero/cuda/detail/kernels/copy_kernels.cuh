#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Copies a pack, and converts it if the types differ.
template <class To, class From>
struct CopyPack {
    To* to;
    From const* from;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        if constexpr (std::is_same_v<To, From>) {
            To values[pack_elements];
            load<whole>(from + index, count, values);
            store<whole>(to + index, count, values);
        } else {
            float values[pack_elements];
            load_floats<whole>(from + index, count, values);
            store_floats<whole>(to + index, count, values);
        }
    }
};

inline constexpr std::size_t chunk_packs = chunk_elements / pack_elements;
inline constexpr std::size_t packs_of_thread = 2; ///< both loads are in flight at once
inline constexpr std::size_t copy_blocks_of_chunk = chunk_packs / packs_of_thread / block_threads;
static_assert(copy_blocks_of_chunk * packs_of_thread * block_threads == chunk_packs);

/// @brief Copies pack number `pack` of a chunk. Consecutive packs are next to each other in memory,
/// so a warp accesses whole sectors.
///
/// If the memory is not aligned, each call moves elements that are not adjacent, and consecutive
/// calls move neighbouring elements.
template <class Body>
__device__ void copy_pack(std::size_t pack, std::size_t elements, Body const& body) {
    bool const is_aligned = are_aligned(body.to, body.from);
    std::size_t const index = pack * pack_elements;
    if (is_aligned && index + pack_elements <= elements) {
        body.template operator()<true>(index, pack_elements);
    } else if (is_aligned) {
        for (std::size_t i = index; i < elements; ++i) {
            body.template operator()<false>(i, 1);
        }
    } else {
#pragma unroll
        for (std::size_t i = pack; i < elements; i += chunk_packs) {
            body.template operator()<false>(i, 1);
        }
    }
}

/// @brief Copies half of a chunk of a table in each block, to a bucket or from it.
template <bool to_bucket, class Tensor, class InBucket>
ZERO_KERNEL void __launch_bounds__(block_threads)
    copy_table_kernel(TableRange<CopySlice<Tensor>> table, InBucket* bucket) {
    Chunk const chunk = table.chunks[blockIdx.x / copy_blocks_of_chunk];
    CopySlice<Tensor> const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    std::size_t const elements = elements_in(chunk, slice);
    InBucket* const in_bucket = bucket + slice.bucket_begin + begin;
    Tensor* const in_tensor = slice.tensor + begin;
    std::size_t const first =
        blockIdx.x % copy_blocks_of_chunk * packs_of_thread * block_threads + threadIdx.x;
#pragma unroll
    for (std::size_t i = 0; i < packs_of_thread; ++i) {
        std::size_t const pack = first + i * block_threads;
        if constexpr (to_bucket) {
            copy_pack(pack, elements, CopyPack<InBucket, Tensor>{in_bucket, in_tensor});
        } else { // the bucket is const here, and const does not make another type of number
            copy_pack(pack, elements,
                      CopyPack<Tensor, std::remove_const_t<InBucket>>{in_tensor, in_bucket});
        }
    }
}

/// @brief Enqueues one kernel that copies tensors to their places in a bucket, or back, and
/// converts where the types differ. @throws CudaError
template <bool to_bucket, class Tensor, class InBucket>
ZERO_CUDA_HIDDEN inline void
copy_table(cudaStream_t stream, TableRange<CopySlice<Tensor>> const& table, InBucket* bucket) {
    launch(stream, table.count * copy_blocks_of_chunk, block_threads,
           copy_table_kernel<to_bucket, Tensor, InBucket>, table, bucket);
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
