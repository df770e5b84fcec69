#pragma once

#include "../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Asks without waiting. "Not ready" is not left behind as the thread's last error, to be
/// mistaken for one of the caller's next launch.
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
