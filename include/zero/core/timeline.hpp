#pragma once

#include "detail/namespace.hpp"
#include "detail/timeline_clock.hpp"
#include "timeline_span.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief Records when the queues of one rank ran what the engine enqueued on them.
///
/// `Timed` fills it; `write_timelines` writes it for Perfetto and chrome://tracing. Its memory is
/// allocated by the constructor, and recording neither allocates nor waits. When it is full it
/// counts the spans it drops. Threads may record at the same time. `summary`, `clear` and
/// `write_timelines` need queues that have run everything: call them after waiting for the engine,
/// for instance by `step_count()`. Neither copyable nor movable; it must outlive the `Timed` that
/// fills it.
class Timeline {
public:
    /// @param rank shown in the trace
    /// @param capacity number of spans, of 144 bytes each; a device adds two events per span. A
    /// step of a model of U units records about 15 U + 10.
    /// @param options data recorded in addition to the spans, which takes further memory
    explicit Timeline(int rank = 0, std::size_t capacity = std::size_t{1} << 14U,
                      TimelineOptions const& options = {});
    Timeline(Timeline const&) = delete;
    Timeline& operator=(Timeline const&) = delete;
    ~Timeline() = default;

    /// @brief Returns the rank that the trace shows.
    [[nodiscard]] int rank() const noexcept { return _rank; }
    /// @brief Returns the number of spans for which there is room.
    [[nodiscard]] std::size_t capacity() const noexcept { return _capacity; }

    /// @brief Stops or resumes the recording. A timeline records from its construction on.
    void set_recording(bool is_on) noexcept { _is_on = is_on; }

    /// @brief Forgets all spans.
    void clear();

    /// @brief Adds a span. `begin` and `end` are unset.
    /// @return null if the timeline is full or stopped
    TimelineSpan* open(TimelinePhase phase, char const* what, std::size_t index,
                       void const* queue) noexcept;

    /// @brief Returns the number of spans that were recorded.
    [[nodiscard]] std::size_t size() const noexcept;

    /// @brief Returns a span by its position, which is less than `size()`.
    [[nodiscard]] TimelineSpan const& operator[](std::size_t position) const noexcept {
        return _spans[position];
    }

    /// @brief Returns the position of a span of this timeline.
    [[nodiscard]] std::size_t position_of(TimelineSpan const& span) const noexcept {
        return static_cast<std::size_t>(&span - _spans.get());
    }

    /// @brief Returns whether spans keep their buckets (`TimelineOptions::buckets`).
    [[nodiscard]] bool has_buckets() const noexcept { return _buckets != nullptr; }

    /// @brief Returns the bucket of a span by its position, which is less than `size()`; null
    /// without the option, and for work on no bucket.
    [[nodiscard]] TimelineBucket const* bucket_of(std::size_t position) const noexcept {
        bool const is_known =
            _buckets != nullptr && _buckets[position].number != TimelineBucket::none;
        return is_known ? &_buckets[position] : nullptr;
    }

    /// @brief Sets the bucket of the spans that the calling thread opens; null: none. It must live
    /// until it is replaced. @return the previous one
    static TimelineBucket const* set_bucket_of_thread(TimelineBucket const* bucket) noexcept;

    /// @brief Reads the times that a device has kept. No-op on the host.
    void resolve();

    /// @brief Sums the complete spans by phase, and the communication that the model waited for.
    /// @throws the error of a device whose times cannot be read
    [[nodiscard]] TimelineSummary summary();

    /// @brief Returns the timeline in which the calling thread records; null if there is none.
    [[nodiscard]] static Timeline* of_thread() noexcept;

    /// @brief Sets the timeline in which the calling thread records; null: none. `TimelineScope`
    /// restores the previous one. @return the previous one
    static Timeline* set_of_thread(Timeline* timeline) noexcept;

    /// @brief Returns the time of `std::chrono::steady_clock` in nanoseconds, as spans hold it.
    [[nodiscard]] static std::int64_t now() noexcept;

    /// @brief Returns the clock that reads the times of a device; null on the host. `QueueClock`
    /// sets it, and this object owns it.
    [[nodiscard]] std::unique_ptr<detail::TimelineClock>& clock() noexcept { return _clock; }

private:
    int _rank;
    std::size_t _capacity;
    std::unique_ptr<TimelineSpan[]> _spans;
    std::unique_ptr<TimelineBucket[]> _buckets; ///< buckets by span; null without the option
    std::unique_ptr<detail::TimelineClock> _clock;
    std::atomic<std::size_t> _wanted{0};
    std::atomic<bool> _is_on{true};
};

/// @brief While it lives, the calling thread records in a timeline. Its destructor restores the
/// previous timeline. Construct and destroy it on the same thread.
///
/// A `Timed` holds one, for the thread that constructs it. Another thread that calls the engine,
/// such as one that runs the backward pass, needs its own.
class TimelineScope {
public:
    /// @param timeline null: the thread records nothing
    explicit TimelineScope(Timeline* timeline) noexcept
        : _previous(Timeline::set_of_thread(timeline)) {}
    TimelineScope(TimelineScope const&) = delete;
    TimelineScope& operator=(TimelineScope const&) = delete;
    ~TimelineScope() { Timeline::set_of_thread(_previous); }

private:
    Timeline* _previous;
};

/// @brief Writes timelines as one file in the Chrome trace format, which Perfetto
/// (ui.perfetto.dev) and chrome://tracing show.
///
/// A rank is a process. Each of its queues is a track, and so is the thread that enqueues
/// ("host"), with its waits and its calls of collectives. Waits below a microsecond are left out.
/// Times are microseconds from the first span on. Ranks of different machines do not share a
/// clock.
/// @param path the file, which is replaced
/// @param timelines timelines of some ranks, whose queues must have run everything
/// @throws Error if the file cannot be written; the error of a device whose times cannot be read
void write_timelines(std::string const& path, std::span<Timeline* const> timelines);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/timeline.ipp"
#include "detail/write_timelines.ipp"
#endif
