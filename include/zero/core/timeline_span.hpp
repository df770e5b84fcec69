#pragma once

#include "detail/namespace.hpp"
#include "timeline_phase.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief One row of a `Timeline`: a command or a collective on a queue, a wait, or work of the
/// caller. Times are nanoseconds of `std::chrono::steady_clock`; `unset` until they are known.
struct TimelineSpan {
    static constexpr std::int64_t unset = -1; ///< a time that is not known

    TimelinePhase phase = TimelinePhase::work; ///< the part of the step
    bool is_collective = false;                ///< data is exchanged with other ranks
    bool stops_model = false;      ///< the model's queue stands still from `begin` to `end`
    bool call_stops_model = false; ///< the model runs on the host and stands still during the call
    void const* queue = nullptr;   ///< identifies the queue; null: the thread that enqueues
    std::size_t index = 0;         ///< index of the bucket if `what` names one, or the caller's
    std::size_t bytes = 0;         ///< payload of a collective
    std::array<char, 40> what{};   ///< such as "gradients of bucket", cut after 39 characters
    std::array<char, 40> parameter{};       ///< the first parameter of the bucket
    std::int64_t called = unset;            ///< when the thread began to enqueue
    std::int64_t returned = unset;          ///< when the call returned
    std::atomic<std::int64_t> begin{unset}; ///< when the queue reached it
    std::atomic<std::int64_t> end{unset};   ///< when the queue finished it
};

} // namespace ZERO_NAMESPACE
