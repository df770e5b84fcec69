#pragma once

#include "rendezvous.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "collective_call.hpp"
#include "run_threads.hpp"

#include <exception>
#include <thread>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE Rendezvous::Rendezvous(std::size_t world, Duration time_out)
    : _world(world), _time_out(smaller(time_out, longest)), _is_here(world, false), _runs(world) {}

/// Polls the counter a few times and returns whether it changed.
ZERO_INLINE bool Rendezvous::spin(std::atomic<std::uint64_t> const& counter,
                                  std::uint64_t from) noexcept {
    for (int turn = 0; turn < 8; ++turn) {
        if (has_moved(counter, from)) {
            return true;
        }
        std::this_thread::yield();
    }
    return false;
}

ZERO_INLINE void Rendezvous::enter(std::size_t rank, CollectiveTag const& tag) {
    std::uint64_t meeting = 0;
    {
        std::lock_guard const lock(_mutex);
        throw_if_aborted(rank, tag);
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
    wait_for_others(rank, meeting, tag);
}

ZERO_INLINE void Rendezvous::pass() {
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
        _changed.wait(lock, [&] { return has_moved(_passing, meeting); });
    }
}

ZERO_INLINE void Rendezvous::abort(std::string_view cause, bool is_provisional) noexcept {
    end(cause, is_provisional, false);
}

ZERO_INLINE void Rendezvous::leave(std::string_view cause, bool is_provisional) noexcept {
    end(cause, is_provisional, true);
}

ZERO_INLINE void Rendezvous::end(std::string_view cause, bool is_provisional,
                                 bool was_left) noexcept {
    {
        std::lock_guard const lock(_mutex);
        if (_is_aborted || (_is_provisional && (is_provisional || was_left))) {
            return;
        }
        _is_provisional = is_provisional;
        _is_aborted = !is_provisional;
        _was_left = was_left;
        _grace_end = std::chrono::steady_clock::now() + grace;
        try {
            _cause = cause;
        } catch (std::exception const&) { // no memory for the text: the state is enough
            _cause.clear();
        }
    }
    _changed.notify_all();
}

ZERO_COLD_INLINE void Rendezvous::begin_run(std::size_t rank) noexcept {
    std::lock_guard const lock(_mutex);
    Runs& runs = _runs[rank];
    runs.begun += runs.depth++ == 0 ? 1 : 0;
}

ZERO_COLD_INLINE void Rendezvous::end_run(std::size_t rank) noexcept {
    {
        std::lock_guard const lock(_mutex);
        Runs& runs = _runs[rank];
        runs.ended += --runs.depth == 0 ? 1 : 0;
    }
    _changed.notify_all();
}

/// Called under the lock.
ZERO_COLD_INLINE void Rendezvous::abort_if_finished(std::size_t rank) {
    if (_is_aborted || _is_provisional) {
        return;
    }
    Runs const& own = _runs[rank];
    for (std::size_t peer = 0; own.depth != 0 && peer < _world; ++peer) {
        if (!_is_here[peer] && _runs[peer].ended >= own.begun) {
            _cause = finished_text(peer);
            _is_aborted = true;
            _was_left = true;
            _changed.notify_all();
            return;
        }
    }
}

ZERO_INLINE std::string Rendezvous::failure() const {
    std::lock_guard const lock(_mutex);
    return _is_aborted && !_was_left ? _cause : std::string();
}

ZERO_INLINE std::string Rendezvous::cause() const {
    std::lock_guard const lock(_mutex);
    return _cause;
}

ZERO_INLINE void Rendezvous::wait_for_others(std::size_t rank, std::uint64_t meeting,
                                             CollectiveTag const& tag) {
    if (spin(_meeting, meeting)) {
        return;
    }
    PolledTime time(_time_out);
    std::unique_lock lock(_mutex);
    while (!has_moved(_meeting, meeting)) {
        abort_if_finished(rank);
        throw_if_aborted(rank, tag);
        // After a provisional cause the time-out decides nothing, and may be over.
        auto const until = _is_provisional ? _grace_end : PolledTime::Clock::now() + time.slice();
        bool const was_woken = _changed.wait_until(lock, until) != std::cv_status::timeout;
        bool const is_over = time.poll();
        if (was_woken || has_moved(_meeting, meeting) || _is_aborted) {
            continue;
        }
        if (_is_provisional) {
            _is_aborted = std::chrono::steady_clock::now() >= _grace_end;
            _changed.notify_all();
        } else if (is_over) {
            give_up(rank, tag);
        }
    }
}

ZERO_INLINE void Rendezvous::give_up(std::size_t rank, CollectiveTag const& tag) {
    std::string missing;
    for (std::size_t peer = 0; peer < _world; ++peer) {
        if (!_is_here[peer]) {
            missing += text({(missing.empty() ? "" : ", "), peer});
        }
    }
    _cause = text({"rank ", rank, " waited ", _time_out.count(), " ms for rank ", missing,
                   " in the collective ", describe(tag)});
    _is_aborted = true;
    _changed.notify_all();
    throw_error<TimedOut>(
        {"zero: ", _cause,
         "; every rank must call the same collectives. If a rank needs longer, raise the "
         "time-out."});
}

ZERO_INLINE void Rendezvous::throw_if_aborted(std::size_t rank, CollectiveTag const& tag) const {
    if (_is_aborted) {
        throw_error<Aborted>({"zero: the group was aborted: ", _cause, " (rank ", rank,
                              " was in the collective ", describe(tag), ")."});
    }
}

} // namespace ZERO_NAMESPACE::detail
