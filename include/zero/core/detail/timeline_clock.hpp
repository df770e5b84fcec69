#pragma once

#include "../timeline_span.hpp"
#include "namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Base of what a timeline needs to read times of a device: `QueueClock` of such a backend
/// gives one to the timeline, which owns it.
class TimelineClock {
public:
    TimelineClock() = default;
    TimelineClock(TimelineClock const&) = delete;
    TimelineClock& operator=(TimelineClock const&) = delete;
    virtual ~TimelineClock() = default;

    /// @brief Sets `begin` and `end` of each of the first `count` spans that the device has
    /// finished.
    virtual void resolve(TimelineSpan* spans, std::size_t count) = 0;

    /// @brief Forgets all marks.
    virtual void clear() = 0;
};

} // namespace ZERO_NAMESPACE::detail
