#pragma once

#include "../../core/detail/namespace.hpp"
#include "chunk.hpp"
#include "config.cuh"

#include <cstddef>

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief Returns the number of thread blocks that process a range, one chunk per block.
ZERO_CUDA_HIDDEN inline constexpr std::size_t chunks_of(std::size_t elements) noexcept {
    return (elements + chunk_elements - 1) / chunk_elements;
}

/// @brief Returns the number of elements in the chunk of [0, n) that begins at `begin`.
inline __device__ std::size_t elements_of_chunk(std::size_t begin, std::size_t n) {
    return n - begin < chunk_elements ? n - begin : chunk_elements;
}

/// @brief Returns the number of elements in a chunk of a slice.
template <class Slice>
inline __device__ std::size_t elements_in(Chunk const& chunk, Slice const& slice) {
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    return slice.elements - begin < chunk_elements ? slice.elements - begin : chunk_elements;
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail
