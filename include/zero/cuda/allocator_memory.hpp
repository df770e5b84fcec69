#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/clean_up.hpp"
#include "detail/runtime/event_pool.hpp"
#include "detail/runtime/stream_capture.hpp"

#include <concepts>
#include <cstddef>
#include <cuda_runtime_api.h>

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

/// @brief An engine's memory resource that takes its memory from a caller-owned allocator, which
/// must outlive it.
///
/// An engine allocates when it is constructed and uses its memory on several streams, so `allocate`
/// waits for the stream. An engine deallocates only after all work that uses the memory has run.
template <DeviceAllocator A>
class AllocatorMemory final : public MemoryResource {
public:
    /// @param stream the stream in whose order the allocator works; must outlive this object
    AllocatorMemory(A& allocator, cudaStream_t stream) noexcept
        : _allocator(&allocator), _stream(stream) {}

    /// @brief Returns memory that every stream may use at once: waits for the allocator's stream.
    /// @throws CudaError; any exception of the allocator
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind) override {
        void* const memory = _allocator->allocate(bytes, _stream);
        detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        return memory;
    }

    /// @brief Deallocates in the order of the allocator's stream; other streams must no longer use
    /// the memory. The device of the memory is current for the allocator. `take_clean_up_error`
    /// reports an exception of the allocator as cudaErrorUnknown.
    void deallocate(void* memory, std::size_t bytes, BufferKind) noexcept override {
        detail::CleanUp clean_up;
        clean_up.use_device_of(memory);
        try {
            _allocator->deallocate(memory, bytes, _stream);
        } catch (...) {
            clean_up.check(cudaErrorUnknown, "deallocate of the allocator");
        }
    }

private:
    A* _allocator;
    cudaStream_t _stream;
};

/// @brief `cudaMalloc` and `cudaFree` as an allocator, for devices without memory pools, where it
/// is the default. Both may wait for the device. Stateless.
struct PlainAllocator {
    /// @brief Allocates on the current device. @throws CudaError
    static void* allocate(std::size_t bytes, cudaStream_t) {
        void* memory = nullptr;
        detail::check(cudaMalloc(&memory, bytes), "cudaMalloc (the device has no memory pools)");
        return memory;
    }

    /// @brief Waits for the work enqueued on `stream` so far, then frees the memory, of any device.
    /// Cannot wait for a stream that is being captured: the work that uses the memory must then
    /// have run. `take_clean_up_error` reports errors.
    static void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept {
        detail::CleanUp clean_up;
        clean_up.use_device_of(memory); // cudaStreamPerThread is a stream of the current device
        if (!detail::is_capturing(stream)) {
            detail::ignore(cudaStreamSynchronize(stream)); // fails only if earlier work has failed
        }
        clean_up.check(cudaFree(memory), "cudaFree");
    }

    /// @brief Returns whether the current device lacks memory pools, which `PoolAllocator` needs.
    [[nodiscard]] static bool is_needed() noexcept {
        int device = 0;
        int has_pools = 1;
        return cudaGetDevice(&device) == cudaSuccess
               && cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device)
                      == cudaSuccess
               && has_pools == 0;
    }
};
static_assert(DeviceAllocator<PlainAllocator>);

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

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Memory of the current device from a stateless allocator, in the order of the library's
/// own stream of that device.
template <DeviceAllocator A>
class SideStreamMemory final : public MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        SideStream const stream;
        return AllocatorMemory<A>(_allocator, stream.get()).allocate(bytes, kind);
    }

    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        CleanUp clean_up;
        clean_up.use_device_of(memory);
        try {
            SideStream const stream;
            AllocatorMemory<A>(_allocator, stream.get()).deallocate(memory, bytes, kind);
        } catch (...) { // no stream can be made, and nothing else throws
            AllocatorMemory<A>(_allocator, cudaStreamPerThread).deallocate(memory, bytes, kind);
        }
    }

private:
    A _allocator;
};

} // namespace ZERO_NAMESPACE::cuda::detail

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the memory resource of engines for which the options name no other:
/// stream-ordered, from the pool of the current device, or that of `PlainAllocator` if the current
/// device has no pools. It does not wait for the legacy stream.
inline MemoryResource& default_memory() noexcept {
    static detail::SideStreamMemory<PoolAllocator> pool_memory;
    static detail::SideStreamMemory<PlainAllocator> plain_memory;
    if (PlainAllocator::is_needed()) {
        return plain_memory;
    }
    return pool_memory;
}

/// @brief Page-locked memory of the host, which a device copies at full speed.
class PinnedMemory final : public MemoryResource {
public:
    /// @brief Allocates and locks pages. @throws CudaError
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind) override {
        void* memory = nullptr;
        detail::check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
        return memory;
    }

    /// @brief Frees memory that no stream uses any more.
    void deallocate(void* memory, std::size_t, BufferKind) noexcept override {
        detail::CleanUp clean_up;
        clean_up.check(cudaFreeHost(memory), "cudaFreeHost");
    }
};

} // namespace ZERO_NAMESPACE::cuda
