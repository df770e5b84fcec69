#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/timeline_clock.hpp"
#include "../../../core/timeline.hpp"
#include "check.hpp"
#include "clean_up.hpp"
#include "event_pool.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Queries an event without waiting. "Not ready" does not stay behind as the thread's last
/// error.
inline cudaError_t query_event(cudaEvent_t event, bool& is_complete) noexcept {
    KeptLastError const last_error;
    cudaError_t const code = cudaEventQuery(event);
    is_complete = code == cudaSuccess;
    return code == cudaErrorNotReady ? cudaSuccess : code;
}

/// @brief Two timing events for each span of a timeline, and one event whose time on the host is
/// known. Times are resolved to about half a microsecond within 8 s after `clear`. Later they are
/// coarser, because CUDA returns a float of milliseconds: 60 us after a quarter of an hour.
class EventClock final : public zero::detail::TimelineClock {
public:
    /// @param capacity number of spans that the timeline can hold
    explicit EventClock(std::size_t capacity)
        : _capacity(capacity), _marks(std::make_unique<Mark[]>(2 * capacity)) {
        _device = current_device();
        try {
            check(cudaEventCreateWithFlags(&_origin, cudaEventDefault), "cudaEventCreateWithFlags");
            for (std::size_t mark = 0; mark < 2 * capacity; ++mark) {
                check(cudaEventCreateWithFlags(&_marks[mark].event, cudaEventDefault),
                      "cudaEventCreateWithFlags");
            }
            clear();
        } catch (...) {
            destroy();
            throw;
        }
    }

    ~EventClock() override { destroy(); }

    void mark(cudaStream_t stream, std::size_t position, bool is_end) {
        Mark& mark = _marks[2 * position + (is_end ? 1 : 0)];
        check(cudaEventRecord(mark.event, stream), "cudaEventRecord");
        mark.is_recorded.store(true, std::memory_order_release);
    }

    void resolve(TimelineSpan* spans, std::size_t count) override {
        for (std::size_t position = 0; position < count; ++position) {
            if (spans[position].queue != nullptr) {
                spans[position].begin = time_of(_marks[2 * position]);
                spans[position].end = time_of(_marks[2 * position + 1]);
            }
        }
    }

    /// Any device may be current.
    void clear() override {
        CurrentDevice const device(_device);
        SideStream const stream;
        for (std::size_t mark = 0; mark < 2 * _capacity; ++mark) {
            _marks[mark].is_recorded = false;
        }
        check(cudaEventRecord(_origin, stream.get()), "cudaEventRecord");
        check(cudaEventSynchronize(_origin), "cudaEventSynchronize");
        _origin_time = Timeline::now();
    }

private:
    struct Mark {
        cudaEvent_t event = nullptr;
        std::atomic<bool> is_recorded{false};
    };

    std::int64_t time_of(Mark const& mark) const {
        bool is_complete = false;
        if (!mark.is_recorded.load(std::memory_order_acquire)) {
            return TimelineSpan::unset;
        }
        check(query_event(mark.event, is_complete), "cudaEventQuery");
        if (!is_complete) {
            return TimelineSpan::unset;
        }
        float milliseconds = 0.0F;
        check(cudaEventElapsedTime(&milliseconds, _origin, mark.event), "cudaEventElapsedTime");
        return _origin_time + static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
    }

    void destroy() noexcept {
        CleanUp clean_up(_device);
        for (std::size_t mark = 0; mark < 2 * _capacity; ++mark) {
            if (_marks[mark].event != nullptr) {
                clean_up.check(cudaEventDestroy(_marks[mark].event), "cudaEventDestroy");
            }
        }
        if (_origin != nullptr) {
            clean_up.check(cudaEventDestroy(_origin), "cudaEventDestroy");
        }
    }

    std::size_t _capacity;
    std::unique_ptr<Mark[]> _marks;
    cudaEvent_t _origin = nullptr;
    int _device = 0;
    std::int64_t _origin_time = 0;
};

} // namespace ZERO_NAMESPACE::cuda::detail
