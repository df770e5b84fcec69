#pragma once

#include "../core/detail/namespace.hpp"
#include "capture_lock.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/event_clock.hpp"
#include "detail/runtime/event_pool.hpp"
#include "detail/runtime/stream_capture.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>

namespace ZERO_NAMESPACE::cuda {

/// @brief A point in a stream: the events of `cuda::Backend`.
///
/// A default-constructed event is complete. Shares ownership of a pooled CUDA event. Copying
/// allocates nothing, does not call CUDA and is safe on any thread.
class Event {
public:
    Event() = default;

    /// @brief Returns the point after all work enqueued on `stream` so far. The stream must belong
    /// to the current device. @throws CudaError
    [[nodiscard]] static Event record(cudaStream_t stream) {
        Event event;
        event._node = detail::EventPool::instance().take();
        CaptureLock const lock(stream);
        event._node->is_captured = lock.is_held();
        detail::check(cudaEventRecord(event._node->event, stream), "cudaEventRecord");
        return event;
    }

    /// @brief Refers to the same point.
    Event(Event const& other) noexcept : _node(other._node) {
        if (_node != nullptr) {
            _node->handles.fetch_add(1, std::memory_order_relaxed);
        }
    }

    /// @brief Leaves `other` complete.
    Event(Event&& other) noexcept : _node(std::exchange(other._node, nullptr)) {}

    /// @brief Refers to another point. Streams that wait for the old point keep waiting for it.
    Event& operator=(Event other) noexcept {
        std::swap(_node, other._node);
        return *this;
    }

    /// @brief Returns the CUDA event to the pool if this was the last reference. Does not wait.
    ~Event() {
        if (_node != nullptr && _node->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            detail::EventPool::instance().give_back(_node);
        }
    }

    /// @brief Makes work that is enqueued on `stream` from now on wait for this point. Does not
    /// block the host. @throws CudaError
    void make_wait(cudaStream_t stream) const {
        if (_node != nullptr) {
            CaptureLock const lock(is_captured() || detail::is_capturing(stream));
            detail::check(cudaStreamWaitEvent(stream, _node->event, cudaEventWaitDefault),
                          "cudaStreamWaitEvent");
        }
    }

    /// @brief Blocks the calling thread until the point is reached.
    /// @throws CudaError, also if work before the event failed; OutOfOrder if the event was
    /// captured
    void synchronise() const {
        if (_node != nullptr) {
            refuse_if_captured("cudaEventSynchronize");
            detail::check(cudaEventSynchronize(_node->event), "cudaEventSynchronize");
        }
    }

    /// @brief Returns whether all work before the point has run. Does not wait. @throws as
    /// `synchronise`
    [[nodiscard]] bool is_complete() const {
        if (_node == nullptr) {
            return true;
        }
        refuse_if_captured("cudaEventQuery");
        bool is_complete = false;
        detail::check(detail::query_event(_node->event, is_complete), "cudaEventQuery");
        return is_complete;
    }

    /// @brief Returns whether the event was recorded during a capture: it is then a point in a
    /// graph, not in time.
    [[nodiscard]] bool is_captured() const noexcept {
        return _node != nullptr && _node->is_captured;
    }

    /// @brief Returns the CUDA event, which callers may only wait for; null if complete from the
    /// start.
    [[nodiscard]] cudaEvent_t handle() const noexcept {
        return _node != nullptr ? _node->event : nullptr;
    }

private:
    /// CUDA would return the same error, but invalidate the capture.
    void refuse_if_captured(char const* what) const {
        if (is_captured()) {
            detail::check(cudaErrorCapturedEvent, what);
        }
    }

    detail::EventNode* _node = nullptr;
};

} // namespace ZERO_NAMESPACE::cuda
