#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "chunk_sizes.cuh"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

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

/// @brief Copies tensors to their places in a bucket, or back, one chunk per block, and converts
/// where the types differ.
template <bool to_bucket, class Tensor, class InBucket>
ZERO_KERNEL void __launch_bounds__(block_threads)
    copy_kernel(TableRange<CopySlice<Tensor>> table, InBucket* bucket) {
    Chunk const chunk = table.chunks[blockIdx.x];
    CopySlice<Tensor> const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    InBucket* const in_bucket = bucket + slice.bucket_begin + begin;
    Tensor* const in_tensor = slice.tensor + begin;
    bool const is_aligned = are_aligned(in_bucket, in_tensor);
    if constexpr (to_bucket) {
        for_packs(elements_in(chunk, slice), is_aligned,
                  CopyPack<InBucket, Tensor>{in_bucket, in_tensor});
    } else {
        for_packs(elements_in(chunk, slice), is_aligned,
                  CopyPack<Tensor, InBucket>{in_tensor, in_bucket});
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
