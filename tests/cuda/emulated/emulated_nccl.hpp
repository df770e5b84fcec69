#pragma once

#include "cuda/fake_communicator.hpp"

#include <zero/cuda/detail/runtime/check.hpp>
#include <zero/cuda/linked_system.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

// The fake NCCL on streams of the emulated device.

namespace zero::test {

class EmulatedNccl : public FakeNccl {
    /// Engines give collectives memory of the device only, never that of the host.
    bool may_use(void const* memory) override {
        cudaPointerAttributes attributes{};
        cuda::detail::check(cudaPointerGetAttributes(&attributes, memory),
                            "cudaPointerGetAttributes");
        return attributes.type != cudaMemoryTypeHost;
    }
    void* allocate_block(std::size_t bytes) override {
        void* memory = nullptr;
        cuda::detail::check(cudaMalloc(&memory, bytes), "cudaMalloc");
        return memory;
    }
    void free_block(void* memory) override { cuda::detail::ignore(cudaFree(memory)); }
    void enqueue(Stream stream, void (*body)(void*), void* kernel) override {
        cuda::detail::check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), body, kernel),
                            "cudaLaunchHostFunc");
    }
};

struct EmulatedWorld {
    EmulatedNccl nccl;
    cuda::LinkedSystem system; // the real one
};

} // namespace zero::test
