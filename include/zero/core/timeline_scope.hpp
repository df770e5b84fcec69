#pragma once

#include "detail/namespace.hpp"
#include "timeline.hpp"

namespace ZERO_NAMESPACE {

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

} // namespace ZERO_NAMESPACE
