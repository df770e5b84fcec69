#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/host_device.hpp"
#include "../../capture_lock.hpp"
#include "../runtime/check.hpp"
#include "chunk.hpp"
#include "config.cuh"

#include <cuda_runtime.h>

#include <cstddef>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

inline constexpr unsigned block_threads = 256;
inline constexpr unsigned warp_threads = 32;
inline constexpr unsigned whole_warp = 0xffffffffU; ///< mask of all threads of a warp
inline constexpr std::size_t pack_elements = 8;     ///< elements that one thread moves at once
inline constexpr std::size_t round_elements =
    block_threads * pack_elements; ///< elements that one thread block moves at once
static_assert(chunk_elements % round_elements == 0);

/// @brief Returns the number of thread blocks that process a range, one chunk per block.
ZERO_CUDA_HIDDEN ZERO_HOST_DEVICE inline constexpr std::size_t
chunks_of(std::size_t elements) noexcept {
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

/// @brief Enqueues a kernel; a no-op for 0 blocks. Every kernel that CUB does not launch is
/// launched here.
/// @param blocks `chunks_of(elements)`, or the chunks of a `SliceTable`: one block for each
/// @throws CudaError
template <class... Parameters, class... Arguments>
ZERO_CUDA_HIDDEN inline void launch(cudaStream_t stream, std::size_t blocks, unsigned threads,
                                    void (*kernel)(Parameters...), Arguments const&... arguments) {
    if (blocks == 0) {
        return;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(
        blocks)); // at most 2^31 - 1; in chunks of 8192 elements that is 2^44 elements
    config.blockDim = dim3(threads);
    config.stream = stream;
    CaptureLock const lock(stream);
    check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx");
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
