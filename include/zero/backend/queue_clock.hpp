#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/timeline.hpp"

#include <atomic>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Records the time at which a queue of a backend reaches a point. This version is for
/// queues whose commands run on the host; `cuda/queue_clock.hpp` has the version for streams.
template <class Backend>
struct QueueClock {
    static_assert(
        !requires { requires Backend::is_device; },
        "zero: QueueClock<Backend>: a timeline of a device needs its clock; for "
        "cuda::Backend include <zero/cuda/queue_clock.hpp>.");

    /// @brief A command that writes the time.
    struct WriteTime {
        std::atomic<std::int64_t>* time; ///< receives the time
        /// @brief Writes the time.
        void operator()() const noexcept {
            time->store(Timeline::now(), std::memory_order_relaxed);
        }
    };

    /// @brief Makes a timeline ready for this clock.
    static void prepare(Timeline&) {}

    /// @brief Enqueues a command that sets `begin` of a span, or `end` if `is_end`.
    static void mark(typename Backend::Queue queue, Timeline&, TimelineSpan& span, bool is_end) {
        Backend::run(queue, WriteTime{is_end ? &span.end : &span.begin});
    }
};

} // namespace ZERO_NAMESPACE
