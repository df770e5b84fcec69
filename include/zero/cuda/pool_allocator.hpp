#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
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

    /// @brief Frees the memory once the work enqueued on `stream` so far has run. Does not wait.
    /// Errors are ignored.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        detail::ignore(cudaFreeAsync(memory, stream));
    }
};
static_assert(DeviceAllocator<PoolAllocator>);

} // namespace ZERO_NAMESPACE::cuda
