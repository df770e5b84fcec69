#pragma once

// The part of LibTorch's streams that zero::torch uses, on the emulated device.

#include <cuda_runtime_api.h>

namespace c10::cuda {

inline thread_local cudaStream_t current_stream = nullptr; ///< set by tests

struct CUDAStream {
    [[nodiscard]] cudaStream_t stream() const { return current_stream; }
};

inline CUDAStream getCurrentCUDAStream() {
    return {};
}

} // namespace c10::cuda
