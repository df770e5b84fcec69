#pragma once

#include "../core/detail/namespace.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the value of a stream option that the caller must set; no stream has it.
inline cudaStream_t unset_stream() noexcept {
    return reinterpret_cast<cudaStream_t>(
        ~std::uintptr_t{0}); // the special streams of CUDA are small numbers
}

} // namespace ZERO_NAMESPACE::cuda
