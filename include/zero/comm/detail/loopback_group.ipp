#pragma once

#include "loopback_group.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "run_threads.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// Returns the number of ranks. @throws InvalidArgument if it is not positive
ZERO_INLINE std::size_t checked_world(int world) {
    if (world <= 0) {
        throw_error<InvalidArgument>(
            {"zero: a group of ", world, " ranks; world must be at least 1."});
    }
    return static_cast<std::size_t>(world);
}

/// Returns the time-out. @throws InvalidArgument if it is not positive
ZERO_INLINE Rendezvous::Duration checked_time_out(LoopbackOptions const& options) {
    if (options.time_out.count() <= 0) {
        throw_error<InvalidArgument>(
            {"zero: a time-out of ", options.time_out.count(), " ms; it must be positive."});
    }
    return options.time_out;
}

/// Zeros, for a piece without memory and for elements in no piece.
alignas(64) inline constexpr std::array<std::byte, 4096> sent_zeros{};

ZERO_INLINE void LoopbackSent::sum(std::span<LoopbackSent> ranks, std::size_t element_bytes,
                                   Range const& range, void const** addresses,
                                   FunctionRef<std::size_t, std::size_t> add) {
    // Short runs are put together: a call for each would cost more than their copy.
    constexpr std::size_t short_run = 256;
    alignas(64) std::array<std::byte, 16384> block;
    std::size_t const room = block.size() / element_bytes / ranks.size();
    std::size_t filled = 0;
    auto const of_rank = [&](std::size_t rank, std::size_t element) {
        return block.data() + (rank * room + element) * element_bytes;
    };
    auto const flush = [&](std::size_t end) {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            addresses[rank] = of_rank(rank, 0);
        }
        if (filled != 0) {
            add(end - filled - range.begin, filled);
        }
        filled = 0;
    };
    for (std::size_t at = range.begin; at != range.end;) {
        std::size_t end = range.end;
        for (LoopbackSent& sent : ranks) {
            end = sent.seek(element_bytes, at, end);
        }
        std::size_t const elements = end - at;
        bool const is_short = elements <= smaller(short_run, room);
        if (!is_short || filled + elements > room) {
            flush(at);
        }
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            addresses[rank] = ranks[rank].address;
            if (is_short) {
                std::memcpy(of_rank(rank, filled), addresses[rank], elements * element_bytes);
            }
        }
        if (is_short) {
            filled += elements;
        } else {
            add(at - range.begin, elements);
        }
        at = end;
    }
    flush(range.end);
}

ZERO_INLINE std::size_t LoopbackSent::seek(std::size_t element_bytes, std::size_t at,
                                           std::size_t end) noexcept {
    auto const set = [&](void const* data, std::size_t element) {
        address = static_cast<std::byte const*>(data) + element * element_bytes;
        return end;
    };
    if (pieces.empty()) {
        return set(send, at);
    }
    while (next < pieces.size() && pieces[next].begin + pieces[next].elements <= at) {
        ++next;
    }
    SentPiece const piece = next < pieces.size() ? pieces[next] : SentPiece{nullptr, end, 0};
    bool const is_between = at < piece.begin;
    end = smaller(end, piece.begin + (is_between ? 0 : piece.elements));
    if (is_between || piece.data == nullptr) {
        end = smaller(end, at + sent_zeros.size() / element_bytes);
        return set(sent_zeros.data(), 0);
    }
    return set(piece.data, at - piece.begin);
}

ZERO_COLD_INLINE void LoopbackFamily::add(Rendezvous& member) {
    std::lock_guard const lock(_mutex);
    for (Rendezvous const* const other : _members) {
        if (std::string const failure = other->failure(); !failure.empty()) {
            member.abort(failure, false);
        }
    }
    _members.push_back(&member);
}

ZERO_COLD_INLINE void LoopbackFamily::remove(Rendezvous& member) noexcept {
    std::lock_guard const lock(_mutex);
    std::erase(_members, &member);
}

ZERO_COLD_INLINE void LoopbackFamily::end_if_stuck() noexcept {
    std::lock_guard const lock(_mutex);
    auto const now = std::chrono::steady_clock::now();
    if (_members.size() > 1 && now >= _next_look) {
        _next_look = now + Rendezvous::look;
        try {
            Rendezvous::end_if_stuck(_members);
        } catch (std::bad_alloc const&) { // no memory for the text: the time-out ends the wait
        }
    }
}

ZERO_COLD_INLINE void LoopbackFamily::abort(std::string_view cause, bool is_provisional) noexcept {
    std::lock_guard const lock(_mutex);
    abort_all(cause, is_provisional);
}

ZERO_COLD_INLINE void LoopbackFamily::spread(Rendezvous const& member) noexcept {
    std::lock_guard const lock(_mutex); // also waits for an abort that is under way
    try {
        if (std::string const failure = member.failure(); !failure.empty()) {
            abort_all(failure, false);
        }
    } catch (std::bad_alloc const&) { // no memory for the text
        abort_all("a group of the family failed", false);
    }
}

ZERO_COLD_INLINE void LoopbackFamily::abort_all(std::string_view cause,
                                                bool is_provisional) noexcept {
    for (Rendezvous* const member : _members) {
        member->abort(cause, is_provisional);
    }
}

ZERO_INLINE LoopbackGroup::LoopbackGroup(int world, LoopbackOptions const& options,
                                         std::shared_ptr<LoopbackFamily> family)
    : _options(options),
      _family(family != nullptr ? std::move(family)
                                : std::make_shared<LoopbackFamily>(checked_world(world))),
      _rendezvous(checked_world(world), checked_time_out(options), &_family->of_groups()),
      _slots(static_cast<std::size_t>(world)) {
    _family->add(_rendezvous);
}

ZERO_COLD_INLINE LoopbackPart LoopbackGroup::enter_split(std::size_t rank, int color, int key) {
    LoopbackSlot& own = _slots[rank];
    own.call = {CollectiveKind::integers, DType::int64, 0, 0, CollectiveTag{"split of the group"}};
    own.color = color;
    own.key = key;
    enter(rank);
    LoopbackPart part{rank, 0, 0};
    for (std::size_t other = 0; other < world(); ++other) {
        LoopbackSlot const& slot = _slots[other];
        if (slot.color == color) {
            part.first = smaller(part.first, other);
            part.rank += slot.key < key || (slot.key == key && other < rank) ? 1 : 0;
            ++part.world;
        }
    }
    return part;
}

ZERO_INLINE void LoopbackGroup::enter(std::size_t rank) {
    try {
        _rendezvous.enter(
            rank, _slots[rank].call.tag, [this] { _family->end_if_stuck(); },
            [this] { _different = first_difference(); });
    } catch (CommunicatorError const&) {
        _family->spread(_rendezvous);
        throw;
    }
    if (_different != 0) {
        part_in_disagreement(_different);
    }
}

/// Returns the first rank whose call differs from the call of rank 0; 0 if all calls are equal.
ZERO_INLINE std::size_t LoopbackGroup::first_difference() const noexcept {
    for (std::size_t rank = 1; rank < _slots.size(); ++rank) {
        if (!(_slots[rank].call == _slots[0].call)) {
            return rank;
        }
    }
    return 0;
}

ZERO_INLINE void LoopbackGroup::part_in_disagreement(std::size_t other) {
    std::string difference;
    try {
        difference = describe(0, _slots[0].call, other, _slots[other].call);
    } catch (...) { // no memory for the text: the ranks must still leave the collective
        difference.clear();
    }
    pass(); // until here the peers read the slot of this rank
    abort(difference, false);
    throw_mismatch(difference);
}

ZERO_INLINE void LoopbackGroup::abort_because_of(std::size_t rank,
                                                 std::exception_ptr const& failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (...) {
        report_failure(rank, [this](std::string_view cause) { abort(cause, false); });
    }
}

ZERO_INLINE void LoopbackGroup::note_failure(std::size_t rank,
                                             std::exception_ptr const& failure) noexcept {
    if (failure != nullptr) {
        _has_failed.store(true, std::memory_order_relaxed);
        abort_because_of(rank, failure); // the cause must be known before the peers ask for it
    }
}

ZERO_INLINE void LoopbackGroup::leave(std::size_t rank, bool is_unwinding) noexcept {
    try {
        leave(text({"rank ", rank, " left the group (",
                    is_unwinding ? "an exception destroyed its communicator)"
                                 : "its communicator was destroyed)"}),
              is_unwinding);
    } catch (...) { // no memory for the text
        leave("a rank left the group", is_unwinding);
    }
}

ZERO_INLINE void LoopbackGroup::throw_if_rank_failed() const {
    if (_has_failed.load(std::memory_order_relaxed)) { // `pass` orders it
        throw_error<Aborted>({"zero: the group was aborted: ", _rendezvous.cause()});
    }
}

} // namespace ZERO_NAMESPACE::detail
