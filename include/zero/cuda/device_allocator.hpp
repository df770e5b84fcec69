#pragma once

#include "../core/detail/namespace.hpp"

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief Something that hands out device memory in the order of a stream: a memory resource of
/// RMM, or two functions around any other interface.
///
/// `allocate` throws, or returns memory that is aligned to at least 128 bytes and may be used by
/// what is enqueued on the stream after the call.
template <class A>
concept DeviceAllocator =
    requires(A& allocator, void* memory, std::size_t bytes, cudaStream_t stream) {
        { allocator.allocate(bytes, stream) } -> std::convertible_to<void*>;
        allocator.deallocate(memory, bytes, stream);
    };

} // namespace ZERO_NAMESPACE::cuda
