#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"
#include "detail/event_pool.hpp"
#include "detail/query_event.hpp"
#include "detail/stream_capture.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>

namespace ZERO_NAMESPACE::cuda {

/// @brief A point in a stream. A default-constructed event is complete. Copying allocates nothing
/// and calls nothing of CUDA; any thread may do it.
class Event {
public:
    Event() = default;

    /// @brief The point after all work that was enqueued on `stream`, which belongs to the current
    /// device. @throws CudaError
    [[nodiscard]] static Event record(cudaStream_t stream) {
        Event event;
        event._node = detail::EventPool::instance().take();
        event._node->is_captured = detail::is_capturing(stream);
        detail::check(cudaEventRecord(event._node->event, stream), "cudaEventRecord");
        return event;
    }

    /// @brief Names the same point.
    Event(Event const& other) noexcept : _node(other._node) {
        if (_node != nullptr) {
            _node->handles.fetch_add(1, std::memory_order_relaxed);
        }
    }

    /// @brief What was moved from is complete.
    Event(Event&& other) noexcept : _node(std::exchange(other._node, nullptr)) {}

    /// @brief Names another point from now on; who waits for the old one goes on waiting for it.
    Event& operator=(Event other) noexcept {
        std::swap(_node, other._node);
        return *this;
    }

    /// @brief The last that names a point gives the runtime's event back to be recorded again.
    /// Waits for nothing.
    ~Event() {
        if (_node != nullptr && _node->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            detail::EventPool::instance().give_back(_node);
        }
    }

    /// @brief Makes what is enqueued on `stream` from now on wait; the host does not. @throws
    /// CudaError
    void make_wait(cudaStream_t stream) const {
        if (_node != nullptr) {
            detail::check(cudaStreamWaitEvent(stream, _node->event, cudaEventWaitDefault),
                          "cudaStreamWaitEvent");
        }
    }

    /// @brief Waits on the calling thread. @throws CudaError, also of work before the event that
    /// failed; OutOfOrder for an event of a capture
    void synchronise() const {
        if (_node != nullptr) {
            refuse_if_captured("cudaEventSynchronize");
            detail::check(cudaEventSynchronize(_node->event), "cudaEventSynchronize");
        }
    }

    /// @brief Whether all work before the point has run; does not wait. @throws as `synchronise`
    [[nodiscard]] bool is_complete() const {
        if (_node == nullptr) {
            return true;
        }
        refuse_if_captured("cudaEventQuery");
        bool is_complete = false;
        detail::check(detail::query_event(_node->event, is_complete), "cudaEventQuery");
        return is_complete;
    }

    /// @brief Whether it is a point in a graph, not in time.
    [[nodiscard]] bool is_captured() const noexcept {
        return _node != nullptr && _node->is_captured;
    }

    /// @brief The event of the runtime, to be waited for only; null when complete from the start.
    [[nodiscard]] cudaEvent_t handle() const noexcept {
        return _node != nullptr ? _node->event : nullptr;
    }

private:
    /// Asking CUDA would give the same answer, but spoil the capture.
    void refuse_if_captured(char const* what) const {
        if (is_captured()) {
            detail::check(cudaErrorCapturedEvent, what);
        }
    }

    detail::EventNode* _node = nullptr;
};

} // namespace ZERO_NAMESPACE::cuda
