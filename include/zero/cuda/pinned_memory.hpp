#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "detail/check.hpp"
#include "detail/clean_up.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

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
