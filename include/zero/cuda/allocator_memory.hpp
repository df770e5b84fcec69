#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "detail/check.hpp"
#include "device_allocator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief Memory of an engine from an allocator of the caller's, which has to outlive it.
///
/// An engine allocates when it is constructed, and uses its memory on several streams: so
/// `allocate` waits for the stream. Memory is given back when everything that used it has run.
template <DeviceAllocator A>
class AllocatorMemory final : public MemoryResource {
public:
    /// @param stream in whose order the allocator works; it has to outlive this object
    AllocatorMemory(A& allocator, cudaStream_t stream) noexcept
        : _allocator(&allocator), _stream(stream) {}

    /// @brief Memory that every stream may use at once: waits for what is on the allocator's
    /// stream. @throws CudaError; what the allocator throws
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind) override {
        void* const memory = _allocator->allocate(bytes, _stream);
        detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        return memory;
    }

    /// @brief Gives the memory back in the order of the allocator's stream; other streams have to
    /// be done with it. What the allocator throws is ignored.
    void deallocate(void* memory, std::size_t bytes, BufferKind) noexcept override {
        try {
            _allocator->deallocate(memory, bytes, _stream);
        } catch (...) { // a runtime that shuts down has taken the memory back
        }
    }

private:
    A* _allocator;
    cudaStream_t _stream;
};

} // namespace ZERO_NAMESPACE::cuda
