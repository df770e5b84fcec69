#pragma once

#include "../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Queries an event without waiting. Does not leave "not ready" as the thread's last error,
/// which the caller could mistake for an error of its next launch.
inline cudaError_t query_event(cudaEvent_t event, bool& is_complete) noexcept {
    bool const was_clean = cudaPeekAtLastError() == cudaSuccess;
    cudaError_t const code = cudaEventQuery(event);
    if (code == cudaErrorNotReady && was_clean) {
        ignore(cudaGetLastError());
    }
    is_complete = code == cudaSuccess;
    return code == cudaErrorNotReady ? cudaSuccess : code;
}

} // namespace ZERO_NAMESPACE::cuda::detail
