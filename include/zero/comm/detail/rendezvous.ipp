#pragma once

#include "rendezvous.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "collective_call.hpp"
#include "run_threads.hpp"

#include <exception>
#include <span>
#include <thread>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE Rendezvous::Rendezvous(std::size_t world, Duration time_out, std::mutex* shared)
    : _world(world), _time_out(smaller(time_out, longest)),
      _mutex(shared != nullptr ? *shared : _own), _places(world), _runs(world) {}

/// Returns the number of the calling thread, which no other thread ever has. The system gives the
/// identifier of a thread that has ended to another one.
ZERO_INLINE std::uint64_t Rendezvous::this_thread() noexcept {
    static std::atomic<std::uint64_t> threads{0};
    thread_local std::uint64_t const number = threads.fetch_add(1) + 1;
    return number;
}

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

ZERO_INLINE void Rendezvous::enter(std::size_t rank, CollectiveTag const& tag,
                                   FunctionRef<> on_look, FunctionRef<> on_last) {
    std::uint64_t const thread = this_thread();
    std::uint64_t meeting = 0;
    {
        std::lock_guard const lock(_mutex);
        throw_if_aborted(rank, tag);
        meeting = _meeting.load(std::memory_order_relaxed);
        _places[rank] = {&tag, thread};
        if (++_arrived == _world) {
            _arrived = 0;
            for (Place& place : _places) {
                place.waits = nullptr;
            }
            if (on_last) {
                on_last();
            }
            _meeting.store(meeting + 1, std::memory_order_release);
        }
    }
    if (has_moved(_meeting, meeting)) {
        _changed.notify_all();
        return;
    }
    wait_for_others(rank, meeting, tag, on_look);
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
    std::uint64_t const thread = this_thread();
    std::lock_guard const lock(_mutex);
    Runs& runs = _runs[rank];
    runs.begun += runs.depth++ == 0 ? 1 : 0;
    _places[rank].thread = thread; // its calls follow
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
        if (_places[peer].waits == nullptr && _runs[peer].ended >= own.begun) {
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
                                             CollectiveTag const& tag, FunctionRef<> on_look) {
    if (spin(_meeting, meeting)) {
        return;
    }
    PolledTime time(_time_out);
    std::unique_lock lock(_mutex);
    while (!has_moved(_meeting, meeting)) {
        abort_if_finished(rank);
        if (_is_mismatch) {
            throw_mismatch(_cause);
        }
        throw_if_aborted(rank, tag);
        // After a provisional cause the time-out decides nothing, and may be over.
        auto const until =
            _is_provisional
                ? _grace_end
                : PolledTime::Clock::now() + smaller<PolledTime::Duration>(time.slice(), look);
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
        } else if (on_look) {
            lock.unlock();
            on_look();
            lock.lock();
        }
    }
}

/// Returns where the thread waits, if that is a group that is stuck as far as is known.
ZERO_COLD_INLINE Rendezvous::Waiting Rendezvous::find_stuck(std::span<Rendezvous* const> family,
                                                            std::uint64_t thread) noexcept {
    for (Rendezvous const* const group : family) {
        for (std::size_t rank = 0; group->_is_stuck && rank < group->_world; ++rank) {
            Place const& place = group->_places[rank];
            if (place.waits != nullptr && place.thread == thread) {
                return {group, rank};
            }
        }
    }
    return {};
}

/// Returns the rank of a thread in the largest group that it has called, for messages.
ZERO_COLD_INLINE std::size_t Rendezvous::name_of(std::span<Rendezvous* const> family,
                                                 Waiting const& waiting) noexcept {
    Waiting largest = waiting;
    for (Rendezvous const* const group : family) {
        for (std::size_t rank = 0; group->_world > largest.group->_world && rank < group->_world;
             ++rank) {
            if (group->_places[rank].thread == waiting.group->_places[waiting.rank].thread) {
                largest = {group, rank};
            }
        }
    }
    return largest.rank;
}

/// Returns where an absent rank of this group waits; none if one of them may still come.
ZERO_COLD_INLINE Rendezvous::Waiting
Rendezvous::first_in_vain(std::span<Rendezvous* const> family) const noexcept {
    Waiting first;
    for (Place const& place : _places) {
        if (place.waits == nullptr) {
            Waiting const elsewhere = find_stuck(family, place.thread);
            if (elsewhere.group == nullptr) {
                return {};
            }
            first = first.group == nullptr ? elsewhere : first;
        }
    }
    return first;
}

ZERO_COLD_INLINE void Rendezvous::end_if_stuck(std::span<Rendezvous* const> family) {
    std::lock_guard const lock(family.front()->_mutex);
    for (Rendezvous* const group : family) {
        group->_is_stuck = group->_arrived != 0 && !group->_is_aborted && !group->_is_provisional;
    }
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (Rendezvous* const group : family) {
            if (group->_is_stuck && group->first_in_vain(family).group == nullptr) {
                group->_is_stuck = false;
                has_changed = true;
            }
        }
    }
    std::string cause;
    for (Rendezvous* const group : family) {
        if (!group->_is_stuck) {
            continue;
        }
        if (cause.empty()) {
            Waiting own{group, 0};
            while (group->_places[own.rank].waits == nullptr) {
                ++own.rank;
            }
            Waiting const other = group->first_in_vain(family);
            auto const call = [](Waiting const& waiting) {
                return text({"the collective ",
                             describe(*waiting.group->_places[waiting.rank].waits), " (",
                             waiting.group->_world, " ranks)"});
            };
            cause = text({"rank ", name_of(family, own), " waits in ", call(own), " for rank ",
                          name_of(family, other), ", which waits in ", call(other)});
        }
        group->_is_aborted = true;
        group->_is_mismatch = true;
        group->_cause = cause;
        group->_changed.notify_all();
    }
}

ZERO_INLINE void Rendezvous::give_up(std::size_t rank, CollectiveTag const& tag) {
    std::string missing;
    for (std::size_t peer = 0; peer < _world; ++peer) {
        if (_places[peer].waits == nullptr) {
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
