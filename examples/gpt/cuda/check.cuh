#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace gpt {

/// @brief Throws unless a call of the CUDA runtime succeeded.
/// @param what the name of the call, for the message
inline void check_cuda(cudaError_t code, char const* what) {
    if (code != cudaSuccess) {
        throw std::runtime_error(std::string(what) + " failed: " + cudaGetErrorString(code));
    }
}

} // namespace gpt
