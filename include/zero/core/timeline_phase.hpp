#pragma once

#include "detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The part of a step that a span of a `Timeline` belongs to.
enum class TimelinePhase : std::uint8_t {
    gather,  ///< parameters are gathered for the forward and backward pass (stage 3)
    reduce,  ///< gradients are cast, accumulated, and summed over the ranks
    inspect, ///< the sum of squares and the overflow check of this rank's gradients
    decide,  ///< the commands and collectives that decide whether and how the step updates
    update,  ///< the optimizer
    publish, ///< updated parameters are gathered into the replicas (stages 1 and 2), and broadcasts
    copy,    ///< copies between tensors and buckets, and fills
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

} // namespace ZERO_NAMESPACE
