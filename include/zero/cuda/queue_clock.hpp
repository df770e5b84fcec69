#pragma once

#include "../backend/queue_clock.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/timeline.hpp"
#include "detail/runtime/event_clock.hpp"
#include "detail/runtime/stream_capture.hpp"
#include "runtime_backend.hpp"

#include <concepts>
#include <memory>

namespace ZERO_NAMESPACE {

/// @brief Marks times on streams with CUDA events, two per span, which `prepare` creates. Work that
/// is captured in a graph is not recorded. Include this header to use `Timed` on a device.
template <class Backend>
    requires std::derived_from<Backend, cuda::RuntimeBackend>
struct QueueClock<Backend> {
    /// @brief Creates the events on the current device, and waits for one of them. @throws
    /// CudaError
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
