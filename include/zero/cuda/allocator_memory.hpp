#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "detail/check.hpp"
#include "detail/clean_up.hpp"
#include "device_allocator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

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

} // namespace ZERO_NAMESPACE::cuda
