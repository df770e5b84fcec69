#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "detail/stream_capture.hpp"
#include "device_allocator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief `cudaMalloc` and `cudaFree` as an allocator, for devices without memory pools, where it
/// is the default. Both may wait for the device. Stateless.
struct PlainAllocator {
    /// @brief Allocates on the current device. @throws CudaError
    static void* allocate(std::size_t bytes, cudaStream_t) {
        void* memory = nullptr;
        detail::check(cudaMalloc(&memory, bytes), "cudaMalloc (the device has no memory pools)");
        return memory;
    }

    /// @brief Frees the memory after the work enqueued on `stream` so far has run, for which it
    /// waits. Errors are ignored.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        detail::OutsideCapture const outside;
        detail::ignore(cudaStreamSynchronize(stream));
        detail::ignore(cudaFree(memory));
    }

    /// @brief Returns whether the current device lacks memory pools, which `PoolAllocator` needs.
    [[nodiscard]] static bool is_needed() noexcept {
        int device = 0;
        int has_pools = 1;
        return cudaGetDevice(&device) == cudaSuccess
               && cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device)
                      == cudaSuccess
               && has_pools == 0;
    }
};
static_assert(DeviceAllocator<PlainAllocator>);

} // namespace ZERO_NAMESPACE::cuda
