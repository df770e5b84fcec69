#pragma once

#include "peers.hpp"

#include "../../core/detail/text.hpp"

#include <chrono>
#include <cstring>
#include <exception>
#include <string>

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
                zero::detail::text(
                    {"in collective ", _number, " rank ", is_first ? _rank : source, " called ",
                     zero::detail::CallSignature::text_of((is_first ? _call : message.call).data()),
                     ", rank ", is_first ? source : _rank, " called ",
                     zero::detail::CallSignature::text_of(
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

/// Names the peers of which a transfer of the round is pending: those that are silent, if any is. A
/// peer that sends heartbeats waits as well.
ZERO_COLD_INLINE std::string Peers::missing_peers(Round const& round) const {
    Clock::time_point const now = Clock::now();
    std::string silent;
    std::string waiting;
    for (int peer = 0; peer < _world; ++peer) {
        bool is_missing = false;
        for (std::size_t request = 0; request < round.used; ++request) {
            is_missing =
                is_missing || (round.peers[request] == peer && is_pending(round.requests[request]));
        }
        if (is_missing) {
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
    if (_number == 0) {
        return "no collective so far";
    }
    return zero::detail::text(
        {"collective ", _number, ", ", zero::detail::CallSignature::text_of(_call.data())});
}

} // namespace ZERO_NAMESPACE::mpi::detail
