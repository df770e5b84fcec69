#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Where the threads of W ranks meet. No data passes here.
///
/// `enter` succeeds for all ranks or for none: an abort, a time-out or a rank that left fails it
/// for everybody, but once the last rank has arrived it has succeeded for all. `pass` cannot fail
/// and is not interrupted: who has entered gets to the next `pass` without waiting for anything
/// else. So whatever goes wrong, nobody leaves a collective while another rank is still inside it.
class Rendezvous {
public:
    using Duration = std::chrono::milliseconds; ///< of time-outs

    /// @param world ranks that meet, at least 1, @param time_out how long `enter` waits for the
    /// last
    Rendezvous(std::size_t world, Duration time_out)
        : _world(world), _time_out(detail::smaller(time_out, longest)), _is_here(world, false) {}

    /// @throws Aborted with the cause, TimedOut naming the missing ranks
    void enter(std::size_t rank, char const* what, std::size_t index) {
        std::uint64_t meeting = 0;
        {
            std::lock_guard const lock(_mutex);
            throw_if_aborted();
            meeting = _meeting.load(std::memory_order_relaxed);
            _is_here[rank] = true;
            if (++_arrived == _world) {
                _arrived = 0;
                _is_here.assign(_world, false);
                _meeting.store(meeting + 1, std::memory_order_release);
            }
        }
        if (has_moved(_meeting, meeting)) {
            _changed.notify_all();
            return;
        }
        wait_for_others(rank, meeting, what, index);
    }

    /// @brief Waits until all ranks are here. After `enter` only.
    void pass() {
        std::uint64_t const meeting = _passing.load(std::memory_order_relaxed);
        if (_passed.fetch_add(1, std::memory_order_acq_rel) + 1 == _world) {
            _passed.store(0, std::memory_order_relaxed);
            {
                std::lock_guard const lock(_mutex);
                _passing.store(meeting + 1, std::memory_order_release);
            }
            _changed.notify_all();
            return;
        }
        if (!spin(_passing, meeting)) {
            std::unique_lock lock(_mutex);
            _changed.wait(lock,
                          [&] { return _passing.load(std::memory_order_acquire) != meeting; });
        }
    }

    /// @brief Fails everybody who waits in `enter` or comes to it. The first cause counts. With
    /// `is_provisional` the others wait a moment longer for a better cause, which whoever catches
    /// the exception may give.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        {
            std::lock_guard const lock(_mutex);
            if (_is_aborted || (is_provisional && _is_provisional)) {
                return;
            }
            _is_provisional = is_provisional;
            _is_aborted = !is_provisional;
            _grace_end = std::chrono::steady_clock::now() + grace;
            try {
                _cause = cause;
            } catch (std::exception const&) { // no memory for the text: the state says enough
                _cause.clear();
            }
        }
        _changed.notify_all();
    }

    /// @brief What `abort` was given; empty before.
    [[nodiscard]] std::string cause() const {
        std::lock_guard const lock(_mutex);
        return _cause;
    }

private:
    static constexpr Duration grace{1000};
    static constexpr Duration longest =
        std::chrono::hours(24 * 365); // a deadline must be representable

    static bool has_moved(std::atomic<std::uint64_t> const& counter, std::uint64_t from) noexcept {
        return counter.load(std::memory_order_acquire) != from;
    }

    static bool spin(std::atomic<std::uint64_t> const& counter, std::uint64_t from) noexcept {
        for (int turn = 0; turn < 8; ++turn) {
            if (has_moved(counter, from)) {
                return true;
            }
            std::this_thread::yield();
        }
        return false;
    }

    void wait_for_others(std::size_t rank, std::uint64_t meeting, char const* what,
                         std::size_t index) {
        if (spin(_meeting, meeting)) {
            return;
        }
        auto const deadline = std::chrono::steady_clock::now() + _time_out;
        std::unique_lock lock(_mutex);
        while (!has_moved(_meeting, meeting)) {
            throw_if_aborted();
            auto const until = _is_provisional && _grace_end < deadline ? _grace_end : deadline;
            if (_changed.wait_until(lock, until) != std::cv_status::timeout
                || has_moved(_meeting, meeting) || _is_aborted) {
                continue;
            }
            if (_is_provisional) {
                _is_aborted = std::chrono::steady_clock::now() >= _grace_end;
            } else if (std::chrono::steady_clock::now() >= deadline) {
                give_up(rank, what, index);
            }
            _changed.notify_all();
        }
    }

    [[noreturn]] void give_up(std::size_t rank, char const* what, std::size_t index) {
        std::string missing;
        for (std::size_t peer = 0; peer < _world; ++peer) {
            if (!_is_here[peer]) {
                missing += detail::text({(missing.empty() ? "" : ", "), peer});
            }
        }
        _cause = detail::text({"rank ", rank, " waited ", _time_out.count(), " ms for rank ",
                               missing, " in the collective '", what, ' ', index, "'"});
        _is_aborted = true;
        _changed.notify_all();
        detail::throw_error<TimedOut>(
            {"zero: ", _cause,
             "; every rank has to call the same collectives, or raise the time-out."});
    }

    void throw_if_aborted() const {
        if (_is_aborted) {
            detail::throw_error<Aborted>({"zero: the group was aborted: ", _cause});
        }
    }

    std::size_t _world;
    Duration _time_out;
    mutable std::mutex _mutex;
    std::condition_variable _changed;
    std::atomic<std::uint64_t> _meeting{0};
    std::atomic<std::uint64_t> _passing{0};
    std::atomic<std::size_t> _passed{0};
    std::size_t _arrived = 0;
    std::vector<char> _is_here;
    bool _is_aborted = false;
    bool _is_provisional = false;
    std::chrono::steady_clock::time_point _grace_end{};
    std::string _cause;
};

} // namespace ZERO_NAMESPACE::detail
