#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/timeline.hpp"
#include "../../core/timeline_span.hpp"
#include "../queue_clock.hpp"

#include <cstddef>
#include <limits>

#if defined(ZERO_NVTX)
#if !__has_include(<nvtx3/nvToolsExt.h>)
#error zero: ZERO_NVTX is defined, but nvtx3/nvToolsExt.h was not found; it is part of the CUDA toolkit. Add its folder, or do not define ZERO_NVTX.
#endif
#include <nvtx3/nvToolsExt.h>
#endif

namespace ZERO_NAMESPACE::detail {

/// @brief A range that Nsight Systems shows on the thread that enqueues, and on the device around
/// the commands that were enqueued in it. A no-op unless `ZERO_NVTX` is defined.
class NvtxRange {
public:
#if defined(ZERO_NVTX)
    explicit NvtxRange(char const* name) noexcept { nvtxRangePushA(name); }
    ~NvtxRange() { nvtxRangePop(); }
#else
    explicit NvtxRange(char const*) noexcept {}
    ~NvtxRange() = default;
#endif
    NvtxRange(NvtxRange const&) = delete;
    NvtxRange& operator=(NvtxRange const&) = delete;
};

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
