#pragma once

#include "../core/detail/namespace.hpp"

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief A stream-ordered allocator of device memory: a memory resource of RMM, or two functions
/// around any other interface. `AllocatorMemory` makes an engine's memory resource of it.
///
/// `allocate` throws, or returns memory that is aligned to at least 128 bytes and that work
/// enqueued on the stream after the call may use.
template <class A>
concept DeviceAllocator =
    requires(A& allocator, void* memory, std::size_t bytes, cudaStream_t stream) {
        { allocator.allocate(bytes, stream) } -> std::convertible_to<void*>;
        allocator.deallocate(memory, bytes, stream);
    };

} // namespace ZERO_NAMESPACE::cuda
