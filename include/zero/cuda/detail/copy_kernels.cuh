#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "chunk_sizes.cuh"
#include "config.cuh"
#include "for_each_index.cuh"
#include "pack.cuh"

#include <cuda_runtime_api.h>

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

/// @brief Copies one pack of a table, to a bucket or from it. Consecutive packs are next to each
/// other in memory, so a warp accesses whole sectors.
///
/// If the memory of a slice is not aligned, each call moves elements that are not adjacent, and
/// consecutive calls move neighbouring elements. Hidden, so that CUB's launchers for it are hidden
/// too.
template <bool to_bucket, class Tensor, class InBucket>
struct ZERO_CUDA_HIDDEN CopyPackOfTable {
    static constexpr std::size_t chunk_packs = chunk_elements / pack_elements;

    TableRange<CopySlice<Tensor>> table;
    InBucket* bucket;

    /// @param pack index over all chunks of the table, counted as if each chunk were full
    __device__ void operator()(std::size_t pack) const {
        Chunk const chunk = table.chunks[pack / chunk_packs];
        CopySlice<Tensor> const slice = table.slices[chunk.slice];
        std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
        InBucket* const in_bucket = bucket + slice.bucket_begin + begin;
        Tensor* const in_tensor = slice.tensor + begin;
        if constexpr (to_bucket) {
            copy(pack % chunk_packs, elements_in(chunk, slice),
                 CopyPack<InBucket, Tensor>{in_bucket, in_tensor});
        } else {
            copy(pack % chunk_packs, elements_in(chunk, slice),
                 CopyPack<Tensor, InBucket>{in_tensor, in_bucket});
        }
    }

private:
    template <class Body>
    __device__ static void copy(std::size_t pack, std::size_t elements, Body const& body) {
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
};

/// @brief Enqueues one kernel that copies tensors to their places in a bucket, or back, and
/// converts where the types differ. @throws CudaError
template <bool to_bucket, class Tensor, class InBucket>
ZERO_CUDA_HIDDEN inline void
copy_table(cudaStream_t stream, TableRange<CopySlice<Tensor>> const& table, InBucket* bucket) {
    using Copy = CopyPackOfTable<to_bucket, Tensor, InBucket>;
    for_each_index(stream, table.count * Copy::chunk_packs, Copy{table, bucket});
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
