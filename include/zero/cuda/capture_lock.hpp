#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/runtime/stream_capture.hpp"

#include <cuda_runtime_api.h>

#include <mutex>

namespace ZERO_NAMESPACE::cuda {

/// @brief Lets one thread at a time enqueue on streams that are being captured, because CUDA does
/// not document that several threads may build one graph at once.
///
/// The library holds one around each of its own commands. A program that captures several loopback
/// ranks into one graph holds one around its own: `CaptureLock const lock(stream);` before a kernel
/// launch. Hold it only for that: a call of an engine takes the same lock, and waits for other
/// ranks. Takes no lock for a stream that is not being captured. It refuses nothing:
/// `detail/runtime/check.hpp` explains the calls that CUDA refuses during a capture.
class CaptureLock {
public:
    /// @brief Waits for other threads if `stream` is being captured.
    explicit CaptureLock(cudaStream_t stream) : CaptureLock(detail::is_capturing(stream)) {}

    /// @brief Waits for other threads if `is_captured`. Use it for a stream that is about to join a
    /// capture.
    explicit CaptureLock(bool is_captured) {
        if (is_captured) {
            _lock = std::unique_lock(detail::capture_mutex());
        }
    }

    /// @brief Returns whether this object holds the lock, that is, whether the stream was being
    /// captured.
    [[nodiscard]] bool is_held() const noexcept { return _lock.owns_lock(); }

private:
    std::unique_lock<std::mutex> _lock;
};

} // namespace ZERO_NAMESPACE::cuda
