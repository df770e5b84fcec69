#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "error.hpp"

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <new>

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

/// @brief The runtime's own stream-ordered allocator with the device's current memory pool.
struct PoolAllocator {
    /// @brief From the pool of the current device; for what is enqueued on `stream` after the call.
    /// @throws CudaError
    static void* allocate(std::size_t bytes, cudaStream_t stream) {
        void* memory = nullptr;
        check(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
        return memory;
    }

    /// @brief Gives the memory back when what is on `stream` so far has run; does not wait. Errors
    /// are ignored.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        ignore(cudaFreeAsync(memory, stream));
    }
};
static_assert(DeviceAllocator<PoolAllocator>);

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
        check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
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

/// @brief Where engines take their memory from unless they are told otherwise: stream-ordered, from
/// the pool of the current device.
inline MemoryResource& default_memory() noexcept {
    static PoolAllocator allocator;
    static AllocatorMemory<PoolAllocator> memory(allocator, cudaStreamPerThread);
    return memory;
}

} // namespace ZERO_NAMESPACE::cuda
