#pragma once

#include "../../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

#include <mutex>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Queries whether a stream is being captured. Fails for the legacy stream during a capture
/// of another one; that failure does not stay behind as the thread's last error.
inline cudaError_t query_capture(cudaStream_t stream, cudaStreamCaptureStatus& status) noexcept {
    KeptLastError const last_error;
    return cudaStreamIsCapturing(stream, &status);
}

/// @brief Returns whether a stream is being captured. Legal during a capture, unlike a wait, which
/// invalidates it. Errors of the stream itself are ignored; its next use reports them.
inline bool is_capturing(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ignore(query_capture(stream, status));
    return status != cudaStreamCaptureStatusNone;
}

/// @brief Returns the mutex of `CaptureLock`: one for all captures, because the query of a capture
/// does not return its graph.
inline std::mutex& capture_mutex() noexcept {
    static std::mutex one;
    return one;
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
