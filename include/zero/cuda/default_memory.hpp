#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "allocator_memory.hpp"
#include "pool_allocator.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the memory resource of engines for which the options name no other:
/// stream-ordered, from the pool of the current device.
inline MemoryResource& default_memory() noexcept {
    static PoolAllocator allocator;
    static AllocatorMemory<PoolAllocator> memory(allocator, cudaStreamPerThread);
    return memory;
}

} // namespace ZERO_NAMESPACE::cuda
