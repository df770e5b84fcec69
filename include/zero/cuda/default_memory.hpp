#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "allocator_memory.hpp"
#include "plain_allocator.hpp"
#include "pool_allocator.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the memory resource of engines for which the options name no other:
/// stream-ordered, from the pool of the current device, or that of `PlainAllocator` if the current
/// device has no pools.
inline MemoryResource& default_memory() noexcept {
    static PoolAllocator pools;
    static PlainAllocator plain;
    static AllocatorMemory<PoolAllocator> pool_memory(pools, cudaStreamPerThread);
    static AllocatorMemory<PlainAllocator> plain_memory(plain, cudaStreamPerThread);
    if (PlainAllocator::is_needed()) {
        return plain_memory;
    }
    return pool_memory;
}

} // namespace ZERO_NAMESPACE::cuda
