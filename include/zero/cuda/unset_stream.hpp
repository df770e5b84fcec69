#pragma once

#include "../core/detail/namespace.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

/// @brief No stream: what an option holds in which the caller has to name one.
inline cudaStream_t unset_stream() noexcept {
    return reinterpret_cast<cudaStream_t>(
        ~std::uintptr_t{0}); // CUDA's own special streams are small numbers
}

} // namespace ZERO_NAMESPACE::cuda
