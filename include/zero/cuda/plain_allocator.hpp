#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "detail/clean_up.hpp"
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

    /// @brief Waits for the work enqueued on `stream` so far, then frees the memory, of any device.
    /// Cannot wait for a stream that is being captured: the work that uses the memory must then
    /// have run. `take_clean_up_error` reports errors.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        detail::CleanUp clean_up;
        clean_up.use_device_of(memory); // cudaStreamPerThread is a stream of the current device
        if (!detail::is_capturing(stream)) {
            detail::ignore(cudaStreamSynchronize(stream)); // fails only if earlier work has failed
        }
        clean_up.check(cudaFree(memory), "cudaFree");
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
