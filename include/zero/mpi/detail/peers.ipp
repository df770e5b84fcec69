#pragma once

#include "../../comm/detail/polled_time.hpp"
#include "../../comm/detail/run_threads.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "peers.hpp"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace ZERO_NAMESPACE::mpi::detail {

ZERO_COLD_INLINE Peers::Peers(MPI_Comm communicator, std::shared_ptr<Family> family,
                              Options const& options)
    : _communicator(communicator), _family(std::move(family)), _options(options),
      _beat(zero::detail::smaller(options.heartbeat, options.time_out / 4)),
      _finish_left(options.finish_time_out), _buffers(std::make_unique<Buffers>()),
      _outgoing(_buffers->outgoing) {
    Lock const lock = _family->lock();
    require_success(MPI_Comm_set_errhandler(_communicator, MPI_ERRORS_RETURN),
                    "MPI_Comm_set_errhandler");
    require_success(MPI_Comm_rank(_communicator, &_rank), "MPI_Comm_rank");
    require_success(MPI_Comm_size(_communicator, &_world), "MPI_Comm_size");
    void* largest = nullptr;
    int is_set = 0;
    require_success(MPI_Comm_get_attr(_communicator, MPI_TAG_UB, &largest, &is_set),
                    "MPI_Comm_get_attr");
    if (is_set != 0) {
        _largest_tag = *static_cast<int const*>(largest);
    }
    auto const world = static_cast<std::size_t>(_world);
    for (Round& round : _rounds) {
        round = Round(2 * world);
    }
    for (Outgoing& outgoing : _outgoing) {
        outgoing.requests = zero::detail::List<MPI_Request>(world);
        for (MPI_Request& request : outgoing.requests) {
            request = MPI_REQUEST_NULL;
        }
    }
    _peers = zero::detail::List<Peer>(world);
    _family->add(this);
    post_message_receive();
}

ZERO_COLD_INLINE bool Peers::close() noexcept {
    int is_finalised = 0;
    MPI_Finalized(&is_finalised);
    if (_is_closed) {
        return !_has_lost_transfers;
    }
    _is_closed = true;
    if (is_finalised == 0) {
        {
            Lock const lock = _family->lock();
            tell(MessageKind::goodbye, FailureKind::none, "");
        }
        bool const is_quiet = drain(true);
        Lock const lock = _family->lock();
        _has_lost_transfers = !is_quiet && !are_transfers_done();
        if (_has_lost_transfers) {
            (void)_buffers.release(); // NOLINT: MPI may still read and write them
        } else {
            MPI_Cancel(&_incoming);
            MPI_Wait(&_incoming, MPI_STATUS_IGNORE);
        }
        if (is_quiet) { // else a peer may still send to it
            _shared.leave();
            MPI_Comm_free(&_communicator);
        }
        if (_has_lost_transfers || (!is_quiet && _family->has_failed())) {
            process_must_abort().store(true);
        }
    }
    Lock const lock = _family->lock();
    _family->remove(this);
    return !_has_lost_transfers;
}

ZERO_INLINE void Peers::discard_into(void* memory, std::size_t bytes) noexcept {
    _discard_memory = memory;
    _discard_bytes = bytes;
}

ZERO_INLINE std::atomic<bool>& Peers::process_must_abort() noexcept {
    static std::atomic<bool> must_abort{false};
    return must_abort;
}

ZERO_INLINE void Peers::begin(zero::detail::CallSignature::Words const& call) {
    Lock const lock = _family->lock();
    ++_number;
    _call = call;
    std::uint64_t const hash = zero::detail::CallSignature::hash_of(call, _number);
    // Ranks that call different collectives do not receive one another's data.
    _tag = 1 + static_cast<int>(hash % static_cast<std::uint64_t>(_largest_tag));
    if (_number % 8 == 0) { // as often as in a wait: polling costs as much as a small transfer
        receive_messages();
    }
    throw_if_final();
}

ZERO_INLINE void Peers::send(Round& round, int peer, void const* data, std::size_t bytes) {
    Lock const lock = _family->lock();
    require_success(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, _tag, _communicator,
                              &round.add(peer, false)),
                    "MPI_Isend");
}

ZERO_INLINE void Peers::receive(Round& round, int peer, void* data, std::size_t bytes) {
    Lock const lock = _family->lock();
    require_success(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, _tag, _communicator,
                              &round.add(peer, true)),
                    "MPI_Irecv");
}

ZERO_INLINE void Peers::reduce(Round& round, int owner, float const* data, float* sum,
                               std::size_t elements) {
    Lock const lock = _family->lock();
    round.is_reducing = true;
    require_success(MPI_Ireduce(data, sum, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, owner,
                                _communicator, &round.add(owner, false)),
                    "MPI_Ireduce");
}

ZERO_INLINE void Peers::reduce_scatter(Round& round, float const* data, float* sum,
                                       int const* counts) {
    Lock const lock = _family->lock();
    round.is_reducing = true;
    require_success(MPI_Ireduce_scatter(data, sum, counts, MPI_FLOAT, MPI_SUM, _communicator,
                                        &round.add(Round::every_peer, false)),
                    "MPI_Ireduce_scatter");
}

ZERO_INLINE bool Peers::is_complete(Round& round) {
    int is_done = 1;
    if (round.meeting == Meeting::none) {
        require_success(MPI_Testall(static_cast<int>(round.used), round.requests.data(), &is_done,
                                    MPI_STATUSES_IGNORE),
                        "MPI_Testall");
    }
    for (std::size_t peer = 0; round.meeting != Meeting::none && peer < _peers.size(); ++peer) {
        is_done = _shared.has_come(peer, round.meeting) ? is_done : 0;
    }
    return is_done != 0;
}

/// Polls a few times under one lock and without the clock, which a small transfer would notice.
ZERO_INLINE bool Peers::finishes_at_once(Round& round) {
    Lock const lock = _family->lock();
    bool is_done = false;
    for (unsigned turn = 0; !is_done && turn < turns_at_once; ++turn) {
        is_done = is_complete(round);
    }
    if (is_done) {
        end(round, before_next_wait);
    }
    return is_done;
}

ZERO_INLINE void Peers::finish(Round& round) {
    if (finishes_at_once(round)) {
        return;
    }
    Clock::time_point const start = Clock::now();
    for (Peer& peer : _peers) {
        peer.heard = peer.heard == before_next_wait ? start : peer.heard;
    }
    Clock::time_point now = start;
    Clock::time_point beat = start + _beat;
    zero::detail::PolledTime time(_options.time_out);
    bool is_over = false;
    unsigned turns_without_peer = 0;
    for (unsigned turn = 1;; ++turn) {
        {
            Lock const lock = _family->lock();
            if (is_complete(round)) {
                end(round, now);
                return;
            }
            if (turn % 8 == 0 || now >= beat) {
                progress_family();
                throw_if_final();
                require_present(round, turns_without_peer);
            }
            if (now >= beat) {
                tell(MessageKind::heartbeat, FailureKind::none, "");
                beat = now + _beat;
            }
            if (is_over) {
                throw_time_out(round);
            }
        }
        if (turn > turns_before_pause) {
            pause(round, now - start);
            now = Clock::now();
            is_over = time.poll(now);
        }
    }
}

/// Ends a round. Notes that the peers whose data arrived are alive.
ZERO_INLINE void Peers::end(Round& round, Clock::time_point now) noexcept {
    for (std::size_t request = 0; request < round.used; ++request) {
        if (round.is_receive[request] != 0) {
            Peer& peer = _peers[static_cast<std::size_t>(round.peers[request])];
            peer.heard = now;
            peer.number = zero::detail::larger(peer.number, _number);
        }
    }
    for (std::size_t peer = 0; round.meeting != Meeting::none && peer < _peers.size(); ++peer) {
        _peers[peer].heard = now;
        _peers[peer].number = _number;
    }
    round.used = 0;
    round.is_reducing = false;
    round.meeting = Meeting::none;
}

/// Yields the core to other threads, or sleeps until a peer in memory comes. A rank that has waited
/// for a while sleeps between two polls of the network: its peers may need the core. MPI's own sums
/// take many steps, each in a poll, so a rank does not sleep in them.
ZERO_INLINE void Peers::pause(Round const& round, Clock::duration waited) {
    for (std::size_t peer = 0; round.meeting != Meeting::none && peer < _peers.size(); ++peer) {
        if (!_shared.has_come(peer, round.meeting)) {
            return _shared.sleep(peer, round.meeting);
        }
    }
    if (round.is_reducing || waited < std::chrono::milliseconds(2)) {
        std::this_thread::yield();
    } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

ZERO_COLD_INLINE void Peers::abort(std::string_view cause, bool is_provisional) noexcept {
    try {
        Lock const lock = _family->lock();
        _family->fail(FailureKind::aborted, cause, is_provisional);
        tell_family();
    } catch (...) { // the lock failed: the peers find out by their time-out
    }
}

ZERO_INLINE void Peers::rethrow_failure() {
    if (_family->has_failed()) {
        Lock const lock = _family->lock();
        throw_if_final();
    }
}

ZERO_COLD_INLINE void Peers::throw_if_final() {
    if (!_family->has_failed() || !_family->is_final()) {
        return;
    }
    tell_family();
    if (_family->kind() == FailureKind::mismatch) {
        zero::detail::throw_error<CollectiveMismatch>(
            {"zero: ", _family->cause(),
             "; every rank must call the same collectives in the same order."});
    }
    zero::detail::throw_error<Aborted>({"zero: the group was aborted: ", _family->cause(),
                                        "; rank ", _rank, " was in ", current_call(), '.'});
}

ZERO_COLD_INLINE void Peers::throw_time_out(Round const& round) {
    std::string const cause =
        zero::detail::text({"rank ", _rank, " waited ", _options.time_out.count(), " ms for ",
                            missing_peers(round), ", in ", current_call()});
    _family->fail(FailureKind::aborted, cause, false);
    tell_family();
    zero::detail::throw_error<TimedOut>(
        {"zero: ", cause,
         "; every rank must call the same collectives. If a rank needs longer, raise "
         "mpi::Options::time_out."});
}

/// Fails the family if the round waits for a peer that has left, after some turns in which the last
/// data of that peer may arrive.
ZERO_COLD_INLINE void Peers::require_present(Round& round, unsigned& turns) {
    if (_family->has_failed()) {
        return;
    }
    for (int peer = 0; peer < _world; ++peer) {
        if (_peers[static_cast<std::size_t>(peer)].is_gone
            && (is_awaited(round, peer)
                || (round.is_reducing && is_awaited(round, Round::every_peer)))) {
            if (++turns > turns_after_goodbye) {
                _family->fail(FailureKind::aborted,
                              zero::detail::text({"rank ", peer,
                                                  " left the group (its communicator "
                                                  "was destroyed)"}),
                              false);
                throw_if_final();
            }
            return;
        }
    }
}

ZERO_COLD_INLINE void Peers::part_after_failure() noexcept {
    try {
        {
            Lock const lock = _family->lock();
            zero::detail::report_failure(
                static_cast<std::size_t>(_rank),
                [&](std::string_view cause) { _family->fail(FailureKind::aborted, cause, false); });
            tell_family();
            tell(MessageKind::goodbye, FailureKind::none, "");
            for (Round& round : _rounds) {
                for (std::size_t request = 0; request < round.used; ++request) {
                    if (round.is_receive[request] != 0
                        && round.requests[request] != MPI_REQUEST_NULL) {
                        MPI_Cancel(&round.requests[request]);
                    }
                }
            }
        }
        (void)drain(false);
    } catch (...) { // the destructor tries again
    }
}

/// Receives and discards until no transfer of this rank is pending and, if `needs_goodbyes`, every
/// peer has promised to send nothing more. Returns whether that was reached in what is left of the
/// time.
ZERO_COLD_INLINE bool Peers::drain(bool needs_goodbyes) noexcept {
    Clock::duration const limit = _finish_left;
    zero::detail::PolledTime time(_options.finish_time_out);
    for (;;) {
        {
            Lock const lock = _family->lock();
            progress_family();
            bool is_done = are_transfers_done();
            for (int peer = 0; needs_goodbyes && peer < _world; ++peer) {
                is_done =
                    is_done && (peer == _rank || _peers[static_cast<std::size_t>(peer)].is_gone);
            }
            if (discard() && is_done) {
                return true;
            }
        }
        (void)time.poll();
        _finish_left = limit - zero::detail::smaller<Clock::duration>(time.waited(), limit);
        if (_finish_left == Clock::duration{}) {
            return false;
        }
        pause(Round{}, time.waited());
    }
}

ZERO_COLD_INLINE bool Peers::are_transfers_done() noexcept {
    bool is_done = _discarding == MPI_REQUEST_NULL;
    for (Round& round : _rounds) {
        for (std::size_t request = 0; request < round.used; ++request) {
            int is_complete = 0;
            MPI_Test(&round.requests[request], &is_complete, MPI_STATUS_IGNORE);
            is_done = is_done && is_complete != 0;
        }
    }
    for (std::size_t kind = 0; kind < message_kinds; ++kind) {
        is_done = is_outgoing_done(static_cast<MessageKind>(kind)) && is_done;
    }
    return is_done;
}

/// Receives data that no command waits for. Returns whether there are none.
ZERO_COLD_INLINE bool Peers::discard() noexcept {
    int is_complete = 1;
    if (_discarding != MPI_REQUEST_NULL) {
        MPI_Test(&_discarding, &is_complete, MPI_STATUS_IGNORE);
    }
    if (is_complete == 0) {
        return false;
    }
    MPI_Status status;
    int is_waiting = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, _communicator, &is_waiting, &status) != MPI_SUCCESS
        || is_waiting == 0) {
        return true;
    }
    if (status.MPI_TAG == message_tag) {
        return false; // two messages arrived at once; the second one is received next
    }
    MPI_Irecv(_discard_memory, static_cast<int>(_discard_bytes), MPI_BYTE, status.MPI_SOURCE,
              status.MPI_TAG, _communicator, &_discarding);
    return false;
}

} // namespace ZERO_NAMESPACE::mpi::detail

// The messages without data, and the texts about peers.

namespace ZERO_NAMESPACE::mpi::detail {

ZERO_INLINE void Peers::post_message_receive() noexcept {
    if (MPI_Irecv(&_buffers->incoming, static_cast<int>(sizeof(Message)), MPI_BYTE, MPI_ANY_SOURCE,
                  message_tag, _communicator, &_incoming)
        != MPI_SUCCESS) {
        _incoming = MPI_REQUEST_NULL;
    }
}

/// Takes all messages that have arrived.
ZERO_INLINE void Peers::receive_messages() noexcept {
    for (;;) {
        int has_arrived = 0;
        MPI_Status status;
        if (_incoming == MPI_REQUEST_NULL) {
            return;
        }
        if (MPI_Test(&_incoming, &has_arrived, &status) != MPI_SUCCESS) {
            _family->fail(FailureKind::aborted, "MPI_Test failed for a message of a peer", false);
            return;
        }
        if (has_arrived == 0) {
            return;
        }
        Message const message = _buffers->incoming;
        post_message_receive();
        try {
            take(message, status.MPI_SOURCE);
        } catch (...) { // no memory for a text
            _family->fail(FailureKind::aborted, "a message of a peer could not be read", false);
        }
    }
}

/// Takes the messages of all communicators of the family, because a failure of one is one of all,
/// and discards what still arrives at those that this rank has left.
ZERO_INLINE void Peers::progress_family() noexcept {
    for (Peers* const member : _family->members()) {
        if (member != nullptr) {
            member->receive_messages();
            if (member->_has_parted && member != this) {
                (void)member->discard();
            }
        }
    }
}

ZERO_COLD_INLINE void Peers::say_goodbye() noexcept {
    try {
        Lock const lock = _family->lock();
        tell(MessageKind::goodbye, FailureKind::none, "");
    } catch (...) { // the lock failed: the destructor tries again
    }
}

ZERO_COLD_INLINE void Peers::take(Message const& message, int source) {
    Peer& peer = _peers[static_cast<std::size_t>(source)];
    peer.heard = Clock::now();
    peer.number = zero::detail::larger(peer.number, message.number);
    switch (message.kind) {
    case MessageKind::heartbeat:
        if (message.number == _number
            && std::memcmp(message.call.data(), _call.data(),
                           zero::detail::CallSignature::parameter_begin * sizeof(std::uint64_t))
                   != 0) {
            bool const is_first = _rank < source;
            _family->fail(
                FailureKind::mismatch,
                zero::detail::text({"in collective ", _number, ' ',
                                    zero::detail::CallSignature::difference(
                                        static_cast<std::size_t>(is_first ? _rank : source),
                                        (is_first ? _call : message.call).data(),
                                        static_cast<std::size_t>(is_first ? source : _rank),
                                        (is_first ? message.call : _call).data())}),
                false);
        }
        break;
    case MessageKind::provisional_failure:
    case MessageKind::failure:
        _family->fail(message.failure, message.text.data(),
                      message.kind == MessageKind::provisional_failure);
        outgoing(message.kind).is_sent = true; // its sender has told all ranks
        tell_family();
        break;
    case MessageKind::goodbye: peer.is_gone = true; break;
    }
}

/// Sends a message to all peers. Every kind except a heartbeat is sent only once.
ZERO_COLD_INLINE void Peers::tell(MessageKind kind, FailureKind failure,
                                  std::string_view text) noexcept {
    Outgoing& out = outgoing(kind);
    bool const is_heartbeat = kind == MessageKind::heartbeat;
    if (_has_parted || (is_heartbeat ? !is_outgoing_done(kind) : out.is_sent)) {
        return; // a goodbye is the last message
    }
    out.is_sent = true;
    out.message.kind = kind;
    out.message.failure = failure;
    out.message.number = _number;
    out.message.call = _call;
    out.message.set_text(text);
    _has_parted = _has_parted || kind == MessageKind::goodbye;
    for (int step = 1; step < _world; ++step) {
        int const peer = (_rank + step) % _world;
        // A peer that has left still waits for the goodbye of this rank, and for nothing else.
        if (kind == MessageKind::goodbye || !_peers[static_cast<std::size_t>(peer)].is_gone) {
            MPI_Isend(&out.message, static_cast<int>(sizeof(Message)), MPI_BYTE, peer, message_tag,
                      _communicator, &out.requests[static_cast<std::size_t>(peer)]);
        }
    }
}

/// Informs the peers about the failure of the family.
ZERO_COLD_INLINE void Peers::tell_failure() noexcept {
    tell(_family->is_provisional() ? MessageKind::provisional_failure : MessageKind::failure,
         _family->kind(), _family->cause());
}

ZERO_COLD_INLINE void Peers::tell_family() noexcept {
    int is_finalised = 0;
    MPI_Finalized(&is_finalised);
    if (is_finalised != 0) {
        return;
    }
    for (Peers* const member : _family->members()) {
        if (member != nullptr) {
            member->tell_failure();
        }
    }
}

ZERO_INLINE bool Peers::is_outgoing_done(MessageKind kind) noexcept {
    bool is_done = true;
    for (MPI_Request& request : outgoing(kind).requests) {
        int is_complete = 0;
        MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE);
        is_done = is_done && is_complete != 0;
    }
    return is_done;
}

ZERO_INLINE bool Peers::is_pending(MPI_Request request) noexcept {
    int is_complete = 1;
    return request != MPI_REQUEST_NULL
           && MPI_Request_get_status(request, &is_complete, MPI_STATUS_IGNORE) == MPI_SUCCESS
           && is_complete == 0;
}

/// Returns whether a peer has not come to the meeting, or a transfer with it is pending.
ZERO_COLD_INLINE bool Peers::is_awaited(Round const& round, int peer) const noexcept {
    if (round.meeting != Meeting::none) {
        return !_shared.has_come(static_cast<std::size_t>(peer), round.meeting);
    }
    bool is_one = false;
    for (std::size_t request = 0; request < round.used; ++request) {
        is_one = is_one || (round.peers[request] == peer && is_pending(round.requests[request]));
    }
    return is_one;
}

/// Names the peers that a round waits for: only the silent ones, if there are any. A peer that
/// sends heartbeats waits as well.
ZERO_COLD_INLINE std::string Peers::missing_peers(Round const& round) const {
    Clock::time_point const now = Clock::now();
    std::string silent;
    std::string waiting;
    for (int peer = 0; peer < _world; ++peer) {
        if (is_awaited(round, peer)) {
            auto const& known = _peers[static_cast<std::size_t>(peer)];
            bool const is_silent = now - known.heard > 2 * _beat;
            std::string& result = is_silent ? silent : waiting;
            result += zero::detail::text({result.empty() ? "rank " : ", rank ", peer});
            if (known.heard == Clock::time_point{}) {
                result += " (not heard of so far)";
            } else {
                auto const silence =
                    std::chrono::duration_cast<std::chrono::milliseconds>(now - known.heard);
                result += zero::detail::text({" (last heard of ", silence.count(),
                                              " ms ago, in its collective ", known.number, ')'});
            }
        }
    }
    return !silent.empty() ? silent : !waiting.empty() ? waiting : "its peers";
}

/// Names the last collective that began.
ZERO_COLD_INLINE std::string Peers::current_call() const {
    return zero::detail::CallSignature::describe_call(_call, _number);
}

} // namespace ZERO_NAMESPACE::mpi::detail
