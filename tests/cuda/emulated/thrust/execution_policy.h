#pragma once

// Stands for the execution policies of Thrust on the emulated device: those that name a stream.

#include "cuda_runtime_api.h"

namespace thrust::cuda {

struct OnStream {
    cudaStream_t stream;
};

struct Policy {
    OnStream on(cudaStream_t stream) const { return {stream}; }
};

inline constexpr Policy par_nosync{};

} // namespace thrust::cuda
