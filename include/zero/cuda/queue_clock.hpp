#pragma once

#include "../backend/queue_clock.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/timeline.hpp"
#include "detail/event_clock.hpp"
#include "detail/stream_capture.hpp"
#include "runtime_backend.hpp"

#include <concepts>
#include <memory>

namespace ZERO_NAMESPACE {

/// @brief Streams note their times by CUDA events, two per span, which `prepare` makes. What is
/// captured in a graph is not recorded. Include this header to use `Timed` on a device.
template <class Backend>
    requires std::derived_from<Backend, cuda::RuntimeBackend>
struct QueueClock<Backend> {
    /// @brief Makes the events, on the current device. Waits for it. @throws CudaError
    static void prepare(Timeline& timeline) {
        if (timeline.clock() == nullptr) {
            timeline.clock() = std::make_unique<cuda::detail::EventClock>(timeline.capacity());
        }
    }

    /// @brief Records the event of `begin`, or of `end` if `is_end`. The stream must belong to the
    /// device of `prepare`. @throws CudaError
    static void mark(typename Backend::Queue queue, Timeline& timeline, TimelineSpan& span,
                     bool is_end) {
        if (!cuda::detail::is_capturing(queue)) {
            static_cast<cuda::detail::EventClock&>(*timeline.clock())
                .mark(queue, timeline.position_of(span), is_end);
        }
    }
};

} // namespace ZERO_NAMESPACE
