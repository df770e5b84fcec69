#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <condition_variable> // also declares clocks and durations, cheaper than <chrono>

namespace ZERO_NAMESPACE::detail {

/// @brief The time that a rank has waited in a loop that polls, which a time-out limits. All
/// transports of a host use it.
///
/// A long pause between two polls counts only in part: the process was stopped or the machine
/// slept. The rank did not poll its peers then, and they may have been stopped as well.
class PolledTime {
public:
    using Clock = std::chrono::steady_clock;
    using Duration = Clock::duration;

    /// @param time_out the limit of `waited`
    explicit PolledTime(Duration time_out) noexcept
        : _time_out(time_out),
          _slice(larger<Duration>(smaller<Duration>(time_out / 8, std::chrono::milliseconds(500)),
                                  std::chrono::milliseconds(1))),
          _last(Clock::now()) {}

    /// @brief The longest time between two polls: an eighth of the time-out, at most half a second.
    /// A pause counts as twice that.
    [[nodiscard]] Duration slice() const noexcept { return _slice; }

    /// @brief Notes a poll. @return whether the time-out is over
    bool poll(Clock::time_point now) noexcept {
        _waited += smaller<Duration>(now - _last, 2 * _slice);
        _last = now;
        return _waited >= _time_out;
    }

    /// @brief The same for the current time.
    bool poll() noexcept { return poll(Clock::now()); }

    [[nodiscard]] Duration waited() const noexcept { return _waited; }

private:
    Duration _time_out;
    Duration _slice;
    Clock::time_point _last;
    Duration _waited{};
};

} // namespace ZERO_NAMESPACE::detail
