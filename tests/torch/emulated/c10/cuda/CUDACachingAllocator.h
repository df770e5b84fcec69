#pragma once

// The part of LibTorch's allocator that zero::torch uses, on the emulated device. It counts.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <vector>

namespace c10::cuda::CUDACachingAllocator {

inline thread_local std::vector<cudaStream_t> streams; ///< of all allocations
inline thread_local int live = 0;

inline void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) {
    void* memory = nullptr;
    (void)cudaMalloc(&memory, bytes);
    streams.push_back(stream);
    ++live;
    return memory;
}

inline void raw_delete(void* memory) {
    (void)cudaFree(memory);
    --live;
}

} // namespace c10::cuda::CUDACachingAllocator
