#pragma once

/// @file
/// @brief LibTorch modules on CUDA devices. Include it in addition to the CUDA headers of `zero`,
/// in the translation units that shard such modules. It needs a LibTorch with CUDA, and nvcc
/// compiles those translation units.

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../cuda/allocator_memory.hpp"
#include "../cuda/owned_stream.hpp"
#include "../cuda/runtime_backend.hpp"
#include "../torch.hpp"
#include "device_of.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <type_traits>

namespace ZERO_NAMESPACE::torch {

/// @brief LibTorch's caching allocator, for a `cuda::AllocatorMemory`. Stateless.
struct CachingAllocator {
    /// @brief Allocates on the current device. @throws c10::OutOfMemoryError
    static void* allocate(std::size_t bytes, cudaStream_t stream) {
        return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
    }

    /// @brief Returns memory to the pool, in the order of the stream that allocated it.
    static void deallocate(void* memory, std::size_t, cudaStream_t) {
        c10::cuda::CUDACachingAllocator::raw_delete(memory);
    }
};
static_assert(cuda::DeviceAllocator<CachingAllocator>);

/// @brief Memory from LibTorch's caching allocator, in the order of LibTorch's current stream. The
/// default of `Sharded` and `Replicated` on a device, so that engine and model share one pool: what
/// one of them has freed, the other can use.
class CachingMemory final : public MemoryResource {
public:
    /// @brief Allocates on the current device, and waits for the current stream.
    /// @throws c10::OutOfMemoryError; CudaError
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        return in_order_of(c10::cuda::getCurrentCUDAStream().stream()).allocate(bytes, kind);
    }

    /// @brief Returns memory to the pool, in the order of the stream that allocated it.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        in_order_of(nullptr).deallocate(memory, bytes, kind); // LibTorch knows the stream
    }

    /// @brief Returns the one object that engines use.
    static CachingMemory& instance() noexcept {
        static CachingMemory one;
        return one;
    }

private:
    cuda::AllocatorMemory<CachingAllocator> in_order_of(cudaStream_t stream) noexcept {
        return {_allocator, stream};
    }

    CachingAllocator _allocator;
};

/// @brief The current CUDA device. LibTorch computes on its current stream.
template <class Backend>
    requires std::is_base_of_v<cuda::RuntimeBackend, Backend>
struct DeviceOf<Backend> {
    static constexpr bool is_supported = true;          ///< modules can be on it
    static constexpr c10::DeviceType type = c10::kCUDA; ///< device of its tensors

    /// @brief Returns the compute queue of an engine: by default the current stream of LibTorch.
    /// @throws InvalidArgument if another one is given
    static cudaStream_t compute_queue(cudaStream_t given) {
        cudaStream_t const current = c10::cuda::getCurrentCUDAStream().stream();
        if (given != cuda::unset_stream() && given != current) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: options.compute_queue is not LibTorch's current stream; leave the option "
                 "as it is, and construct under the c10::cuda::CUDAStreamGuard of the training."});
        }
        return current;
    }

    /// @brief Returns the memory of an engine: by default that of LibTorch.
    static MemoryResource* memory(MemoryResource* given) noexcept {
        return given != nullptr ? given : &CachingMemory::instance();
    }

    /// @brief Requires that LibTorch's current stream is the one of the construction.
    /// @throws OutOfOrder
    static void require_current(cudaStream_t queue) {
        if (c10::cuda::getCurrentCUDAStream().stream() != queue) {
            zero::detail::throw_error<OutOfOrder>(
                {"zero: LibTorch's current stream is not the one on which the module was sharded; "
                 "train under the same c10::cuda::CUDAStreamGuard."});
        }
    }
};

} // namespace ZERO_NAMESPACE::torch
