#pragma once

#include "../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns whether a stream is being captured. Legal during a capture, unlike a wait, which
/// invalidates it. Errors of the stream itself are ignored; its next use reports them.
inline bool is_capturing(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ignore(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/// @brief While an object lives, the calling thread may query and wait for work outside a capture.
/// CUDA otherwise forbids that during a capture of this thread, and during a global capture of any
/// thread.
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
