#pragma once

#include "../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Legal during a capture, unlike a wait, which spoils it. What is wrong with a stream is
/// reported by the call that this is asked for.
inline bool is_capturing(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ignore(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/// @brief While it lives, the calling thread may ask about and wait for what is outside a capture,
/// which CUDA else forbids during one of this thread, or a global one of another.
class OutsideCapture {
public:
    OutsideCapture() noexcept { ignore(cudaThreadExchangeStreamCaptureMode(&_mode)); }
    OutsideCapture(OutsideCapture&&) = delete;
    OutsideCapture& operator=(OutsideCapture&&) = delete;
    ~OutsideCapture() { ignore(cudaThreadExchangeStreamCaptureMode(&_mode)); }

private:
    cudaStreamCaptureMode _mode = cudaStreamCaptureModeRelaxed;
};

} // namespace ZERO_NAMESPACE::cuda::detail
