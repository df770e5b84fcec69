#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "allocator_memory.hpp"
#include "pool_allocator.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda {

/// @brief Where engines take their memory from unless they are told otherwise: stream-ordered, from
/// the pool of the current device.
inline MemoryResource& default_memory() noexcept {
    static PoolAllocator allocator;
    static AllocatorMemory<PoolAllocator> memory(allocator, cudaStreamPerThread);
    return memory;
}

} // namespace ZERO_NAMESPACE::cuda
