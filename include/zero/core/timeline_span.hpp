#pragma once

#include "detail/namespace.hpp"
#include "set_by_name.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ZERO_NAMESPACE {

/// @brief The part of a step that a span of a `Timeline` belongs to.
enum class TimelinePhase : std::uint8_t {
    gather,  ///< parameters are gathered for the forward and backward pass (stage 3)
    reduce,  ///< gradients are cast, accumulated, and summed over the ranks
    inspect, ///< the sum of squares and the overflow check of this rank's gradients
    decide,  ///< the commands and collectives that decide whether and how the step updates
    update,  ///< the optimizer
    publish, ///< updated parameters are gathered into the replicas (stages 1 and 2), and broadcasts
    copy,    ///< copies between tensors and buckets, fills, and transfers of a tier
    wait,    ///< a queue, or the host, waits
    work     ///< a span of the caller, such as the forward pass of a unit
};

/// @brief Number of enumerators of `TimelinePhase`.
inline constexpr std::size_t timeline_phases = 9;

/// @brief The name of a phase: the category of its events in a trace.
constexpr char const* name_of(TimelinePhase phase) noexcept {
    constexpr std::array<char const*, timeline_phases> names{
        "gather", "reduce", "inspect", "decide", "update", "publish", "copy", "wait", "work"};
    return names[static_cast<std::size_t>(phase)];
}

/// @brief One row of a `Timeline`: a command or a collective on a queue, a wait, or work of the
/// caller. Times are nanoseconds of `std::chrono::steady_clock`; `unset` until they are known.
struct TimelineSpan {
    static constexpr std::int64_t unset = -1; ///< a time that is not known

    TimelinePhase phase = TimelinePhase::work; ///< the part of the step
    bool is_collective = false;                ///< data is exchanged with other ranks
    bool stops_model = false;                  ///< the model's queue is idle from `begin` to `end`
    bool call_stops_model = false;    ///< the model runs on the host and waits during the call
    void const* queue = nullptr;      ///< identifies the queue; null: the thread that enqueues
    std::size_t index = 0;            ///< index of the bucket if `what` names one, or the caller's
    std::size_t bytes = 0;            ///< payload of a collective
    std::array<char, 40> what{};      ///< such as "gradients of bucket", cut after 39 characters
    std::array<char, 40> parameter{}; ///< the first parameter of the bucket
    std::int64_t called = unset;      ///< when the thread began to enqueue
    std::int64_t returned = unset;    ///< when the call returned
    std::atomic<std::int64_t> begin{unset}; ///< when the queue reached it
    std::atomic<std::int64_t> end{unset};   ///< when the queue finished it
};

/// @brief The bucket that a span of a `Timeline` works on, with `TimelineOptions::buckets`.
struct TimelineBucket {
    static constexpr std::size_t none =
        std::numeric_limits<std::size_t>::max(); ///< `number` of work on no bucket

    std::size_t number = none;    ///< index of the bucket in the layout
    std::array<char, 64> units{}; ///< the names of its first and last unit, cut to fit: "layer 1 to
                                  ///< layer 3", or one name if both are the same
};

/// @brief Options of a `Timeline`: the data that it records in addition to its spans.
struct TimelineOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    bool buckets = false; ///< the bucket, with its units, on which a gather, a reduction or a
                          ///< publish works (`Timeline::bucket_of`)
};

/// @brief The sums of a `Timeline`, in seconds.
struct TimelineSummary {
    std::array<double, timeline_phases> seconds{}; ///< by phase, waits for peers included
    double communication = 0.0; ///< time in which at least one collective was in progress
    double exposed = 0.0;       ///< the part of it during which the model waited
    std::size_t spans = 0;      ///< complete spans
    std::size_t dropped = 0;    ///< spans for which the timeline had no room

    /// @brief The share of the communication that overlapped with the model: 0 to 1, and 1 if there
    /// was no communication.
    [[nodiscard]] double hidden_share() const noexcept {
        return communication > 0.0 ? 1.0 - exposed / communication : 1.0;
    }
};

} // namespace ZERO_NAMESPACE
