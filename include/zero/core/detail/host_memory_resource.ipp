#pragma once

#include "../host_memory_resource.hpp"

#include <new>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void* HostMemoryResource::allocate(std::size_t bytes, BufferKind kind) {
    void* memory = ::operator new(bytes, std::align_val_t{alignment});
    _allocated[static_cast<std::size_t>(kind)] += bytes;
    return memory;
}

ZERO_COLD_INLINE void HostMemoryResource::deallocate(void* memory, std::size_t bytes,
                                                     BufferKind kind) noexcept {
    ::operator delete(memory, std::align_val_t{alignment});
    _allocated[static_cast<std::size_t>(kind)] -= bytes;
}

ZERO_COLD_INLINE std::size_t HostMemoryResource::allocated_bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& bytes : _allocated) {
        sum += bytes;
    }
    return sum;
}

} // namespace ZERO_NAMESPACE
