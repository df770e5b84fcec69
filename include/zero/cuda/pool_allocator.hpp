#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "detail/stream_capture.hpp"
#include "device_allocator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief The stream-ordered allocator of the CUDA runtime, with the device's current memory pool.
/// Stateless.
struct PoolAllocator {
    /// @brief Allocates from the pool of the current device, for work that is enqueued on `stream`
    /// after the call. @throws CudaError
    static void* allocate(std::size_t bytes, cudaStream_t stream) {
        void* memory = nullptr;
        detail::check(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
        return memory;
    }

    /// @brief Frees the memory once the work enqueued on `stream` so far has run. Does not wait,
    /// unless the memory belongs to another device than the current one or the stream is being
    /// captured. Errors are ignored, and leave no last error behind.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        bool const was_clean = cudaPeekAtLastError() == cudaSuccess;
        if (cudaFreeAsync(memory, stream) == cudaSuccess) {
            return;
        }
        free_elsewhere(memory, stream);
        if (was_clean) {
            detail::ignore(cudaGetLastError());
        }
    }

private:
    /// The stream of a thread, or none, is one of the current device.
    static void free_elsewhere(void* memory, cudaStream_t stream) noexcept {
        detail::OutsideCapture const outside;
        int current = 0;
        cudaPointerAttributes attributes{};
        if (cudaGetDevice(&current) != cudaSuccess
            || cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
            return;
        }
        detail::ignore(cudaSetDevice(attributes.device));
        if (cudaFreeAsync(memory, stream) != cudaSuccess) {
            detail::ignore(cudaStreamSynchronize(stream));
            detail::ignore(cudaFree(memory));
        }
        detail::ignore(cudaSetDevice(current));
    }
};
static_assert(DeviceAllocator<PoolAllocator>);

} // namespace ZERO_NAMESPACE::cuda
