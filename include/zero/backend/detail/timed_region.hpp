#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/nvtx_range.hpp"
#include "../../core/timeline.hpp"
#include "../../core/timeline_phase.hpp"
#include "../queue_clock.hpp"

#include <cstddef>
#include <limits>

namespace ZERO_NAMESPACE::detail {

/// @brief Records one span. On the host it lasts from construction to destruction, and on the queue
/// while the commands enqueued in between run. A no-op on a thread without a timeline.
template <class Backend>
class TimedRegion {
public:
    using Queue = typename Backend::Queue;
    static constexpr std::size_t no_index = std::numeric_limits<std::size_t>::max();

    TimedRegion(Queue queue, TimelinePhase phase, char const* what, std::size_t index = no_index)
        : _nvtx(what), _timeline(Timeline::of_thread()), _queue(queue) {
        if (_timeline == nullptr) {
            return;
        }
        _span = _timeline->open(phase, what, index, queue);
        if (_span != nullptr) {
            _span->called = Timeline::now();
            QueueClock<Backend>::mark(_queue, *_timeline, *_span, false);
        }
    }
    TimedRegion(TimedRegion const&) = delete;
    TimedRegion& operator=(TimedRegion const&) = delete;

    /// If the queue takes no more commands, the span stays incomplete and is not shown.
    ~TimedRegion() {
        if (_span == nullptr) {
            return;
        }
        try {
            QueueClock<Backend>::mark(_queue, *_timeline, *_span, true);
        } catch (...) {}
        _span->returned = Timeline::now();
    }

    /// @brief Returns the span; null if nothing is recorded.
    [[nodiscard]] TimelineSpan* span() const noexcept { return _span; }

private:
    NvtxRange _nvtx;
    Timeline* _timeline;
    Queue _queue;
    TimelineSpan* _span = nullptr;
};

} // namespace ZERO_NAMESPACE::detail
