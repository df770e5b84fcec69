#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "detail/clean_up.hpp"
#include "detail/stream_capture.hpp"
#include "device_allocator.hpp"
#include "plain_allocator.hpp"

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

    /// @brief Frees the memory, of any device, once the work enqueued on `stream` so far has run.
    /// Does not wait, unless the pool refuses. A stream that is being captured is not used: the
    /// work that uses the memory must then have run. `take_clean_up_error` reports errors.
    static void deallocate(void* memory, std::size_t bytes, cudaStream_t stream) noexcept {
        detail::CleanUp clean_up;
        clean_up.use_device_of(memory); // cudaStreamPerThread is a stream of the current device
        if (detail::is_capturing(stream) || cudaFreeAsync(memory, stream) != cudaSuccess) {
            PlainAllocator::deallocate(memory, bytes, stream);
        }
    }
};
static_assert(DeviceAllocator<PoolAllocator>);

} // namespace ZERO_NAMESPACE::cuda
