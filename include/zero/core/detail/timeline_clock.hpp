#pragma once

#include "../timeline_span.hpp"
#include "namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Reads the times that a device recorded for a timeline. The device backend's `QueueClock`
/// creates it; the timeline owns it.
class TimelineClock {
public:
    TimelineClock() = default;
    TimelineClock(TimelineClock const&) = delete;
    TimelineClock& operator=(TimelineClock const&) = delete;
    virtual ~TimelineClock() = default;

    /// @brief Sets `begin` and `end` of each of the first `count` spans that the device has
    /// finished.
    virtual void resolve(TimelineSpan* spans, std::size_t count) = 0;

    /// @brief Forgets all recorded times.
    virtual void clear() = 0;
};

} // namespace ZERO_NAMESPACE::detail
