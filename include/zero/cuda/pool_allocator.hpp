#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "device_allocator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief The runtime's own stream-ordered allocator with the device's current memory pool.
struct PoolAllocator {
    /// @brief From the pool of the current device; for what is enqueued on `stream` after the call.
    /// @throws CudaError
    static void* allocate(std::size_t bytes, cudaStream_t stream) {
        void* memory = nullptr;
        detail::check(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
        return memory;
    }

    /// @brief Gives the memory back when what is on `stream` so far has run; does not wait. Errors
    /// are ignored.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        detail::ignore(cudaFreeAsync(memory, stream));
    }
};
static_assert(DeviceAllocator<PoolAllocator>);

} // namespace ZERO_NAMESPACE::cuda
