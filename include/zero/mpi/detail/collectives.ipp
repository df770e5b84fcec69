#pragma once

#include "../../comm/collective_tag.hpp"
#include "../../comm/detail/flight.hpp"
#include "../../comm/detail/polled_time.hpp"
#include "../../comm/detail/shared_memory.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../../host/host_backend.hpp"
#include "collectives.hpp"
#include "peers.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

namespace ZERO_NAMESPACE::mpi::detail {

using zero::detail::Extents;
using zero::detail::Flight;
using zero::detail::Part;

/// @brief Calls `post(round)` for each round, and `take(round)` when its transfers are complete.
/// Two rounds are in flight at a time.
template <class Post, class Take>
void in_rounds(Peers& peers, std::size_t rounds, Post const& post, Take const& take) {
    zero::detail::in_rounds(rounds, post, [&](std::size_t number) {
        peers.finish(peers.round(number));
        take(number);
    });
}

ZERO_COLD_INLINE Collectives::Collectives(MPI_Comm communicator, std::shared_ptr<Family> family,
                                          Options const& options)
    : _options(options), _exceptions(std::uncaught_exceptions()),
      _peers(communicator, std::move(family), options) {
    std::size_t const bytes =
        zero::detail::larger(options.scratch_bytes, scratch_bytes_per_rank * world());
    _scratch = Buffer<std::byte>(*options.memory, bytes / 128 * 128, BufferKind::communicator);
    _pieces = zero::detail::List<void const*>(world());
    _counts = zero::detail::List<int>(world());
    _flights = zero::detail::Flights(world());
    _peers.discard_into(_scratch.data(), half_bytes());
}

ZERO_COLD_INLINE void Collectives::abort_if_unwinding() noexcept {
    if (std::uncaught_exceptions() > _exceptions) {
        _peers.abort(zero::detail::text(
                         {"rank ", _peers.rank(), " left the group while an exception unwound"}),
                     true);
    }
}

ZERO_COLD_INLINE void Collectives::part(std::unique_ptr<Collectives> own) noexcept {
    if (own == nullptr || std::uncaught_exceptions() <= own->_exceptions
        || own->_options.memory != &HostBackend::default_memory()) { // which may be gone later
        return;
    }
    own->abort_if_unwinding();
    own->_flights.synchronise();
    own->_peers.say_goodbye();
    try {
        auto const family = own->_peers.family();
        std::shared_ptr<void> leaving = std::move(own);
        auto const lock = family->lock();
        family->keep(leaving); // otherwise it waits now, after the lock
    } catch (...) {            // no memory: it waits now
    }
}

ZERO_COLD_INLINE Collectives::~Collectives() {
    abort_if_unwinding();
    {
        auto const kept = [&] {
            auto const lock = _peers.family()->lock();
            return _peers.family()->take_kept();
        }(); // they wait for their peers first
    }
    _flights.synchronise();
    if (!_peers.close()) { // MPI may still write to the memory
        (void)new (std::nothrow) Buffer<std::byte>(std::move(_scratch));
    }
}

ZERO_INLINE void Collectives::enqueue(zero::detail::CollectiveCall const& call,
                                      zero::detail::CollectiveMemory memory, host::Queue* queue) {
    memory.sum.is_by_library = memory.sum.add != nullptr && call.type == DType::float32
                               && !memory.sum.is_tree && _options.order == Order::library;
    _flights.enqueue(call, memory, queue, [this](Flight const& flight) { run(flight); });
}

ZERO_INLINE void Collectives::run(Flight const& flight) {
    try {
        _peers.begin(flight.signature);
        bool const is_sent =
            flight.kind == CollectiveKind::integers || (flight.sum.is_by_library && world() > 2);
        if (_peers.shared().is_shared() && !is_sent
            && _peers.shared().run(flight, [&](Meeting meeting) { _peers.meet(meeting); })) {
            return;
        }
        switch (flight.kind) {
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::exchange: exchange_extents(flight, flight.receive); break;
        case CollectiveKind::all_gather: gather_extents(flight, flight.send); break;
        case CollectiveKind::all_reduce: {
            auto* const own = static_cast<std::byte*>(flight.receive)
                              + flight.cuts[rank()] * flight.element_bytes;
            exchange_extents(flight, own);
            gather_extents(flight, own);
            break;
        }
        case CollectiveKind::broadcast: broadcast(flight); break;
        case CollectiveKind::integers: reduce_integers(flight); break;
        }
    } catch (...) {
        _peers.part_after_failure();
        throw;
    }
}

/// Returns the memory for the message of a peer. This rank's own piece has none.
ZERO_INLINE std::byte* Collectives::scratch_of(std::size_t round, std::size_t peer,
                                               std::size_t bytes) const noexcept {
    return _scratch.data() + round % 2 * half_bytes() + (peer < rank() ? peer : peer - 1) * bytes;
}

/// Every rank sends each extent to its owner, which adds the pieces in rank order as they arrive in
/// the scratch memory, or, in an exchange, receives them where they stay.
ZERO_INLINE void Collectives::exchange_extents(Flight const& flight, void* out) {
    if (flight.sum.is_by_library && world() > 2) { // two values have one order
        reduce_extents_by_library(flight, out);
        return;
    }
    bool const is_sum = flight.sum.add != nullptr;
    Extents const extents(flight, is_sum ? piece_elements(flight.element_bytes)
                                         : half_bytes() / flight.element_bytes);
    std::size_t const piece_bytes = extents.piece * flight.element_bytes;
    auto const* const send = static_cast<std::byte const*>(flight.send);
    auto const arrival = [&](std::size_t number, std::size_t peer) {
        return is_sum ? scratch_of(number, peer, piece_bytes)
                      : static_cast<std::byte*>(out) + peer * extents.whole(rank()).bytes
                            + number * piece_bytes;
    };
    auto const post = [&](std::size_t number) {
        Round& round = _peers.round(number);
        Part const own = extents.part(rank(), number);
        for (std::size_t step = 1; own.bytes != 0 && step < world(); ++step) {
            std::size_t const peer = previous(step);
            _peers.receive(round, static_cast<int>(peer), arrival(number, peer), own.bytes);
        }
        for (std::size_t step = 1; step < world(); ++step) {
            Part const part = extents.part(next(step), number);
            if (part.bytes != 0) {
                _peers.send(round, static_cast<int>(next(step)), send + part.offset, part.bytes);
            }
        }
    };
    auto const take = [&](std::size_t number) {
        Part const own = extents.part(rank(), number);
        if (own.bytes != 0 && !is_sum) {
            std::memcpy(arrival(number, rank()), send + own.offset, own.bytes);
        } else if (own.bytes != 0) {
            for (std::size_t peer = 0; peer < world(); ++peer) {
                _pieces[peer] = peer == rank() ? send + own.offset : arrival(number, peer);
            }
            flight.sum.add(out, flight.sum.held, number * extents.piece, _pieces.data(),
                           _peers.world(), own.bytes / flight.element_bytes);
        }
    };
    in_rounds(_peers, extents.rounds, post, take);
}

/// One reduce-scatter if the extents fit the scratch memory. Otherwise one reduction to each owner
/// in turn, in pieces that fit: a part of every extent is not in one piece of memory.
ZERO_INLINE void Collectives::reduce_extents_by_library(Flight const& flight, void* out) {
    Extents const extents(flight, half_bytes() / sizeof(float));
    auto const* const send = static_cast<std::byte const*>(flight.send);
    auto const post = [&](std::size_t number) {
        if (extents.rounds == 1) {
            for (std::size_t owner = 0; owner < world(); ++owner) {
                _counts[owner] = static_cast<int>(flight.cuts[owner + 1] - flight.cuts[owner]);
            }
            _peers.reduce_scatter(_peers.round(number), reinterpret_cast<float const*>(send),
                                  reinterpret_cast<float*>(_scratch.data()), _counts.data());
            return;
        }
        for (std::size_t owner = 0; owner < world(); ++owner) {
            Part const part = extents.part(owner, number);
            if (part.bytes != 0) {
                auto* const sum =
                    reinterpret_cast<float*>(_scratch.data() + number % 2 * half_bytes());
                _peers.reduce(_peers.round(number), static_cast<int>(owner),
                              reinterpret_cast<float const*>(send + part.offset),
                              owner == rank() ? sum : nullptr, part.bytes / sizeof(float));
            }
        }
    };
    auto const store = [&](std::size_t number) {
        Part const own = extents.part(rank(), number);
        if (own.bytes != 0) {
            _pieces[0] = _scratch.data() + number % 2 * half_bytes();
            flight.sum.add(out, flight.sum.held, number * extents.piece, _pieces.data(), 1,
                           own.bytes / sizeof(float));
        }
    };
    in_rounds(_peers, extents.rounds, post, store);
}

ZERO_INLINE void Collectives::gather_extents(Flight const& flight, void const* own) {
    Extents const extents(flight, half_bytes() / flight.element_bytes);
    auto* const receive = static_cast<std::byte*>(flight.receive);
    Part const whole = extents.whole(rank());
    if (whole.bytes != 0 && receive + whole.offset != own) {
        std::memcpy(receive + whole.offset, own, whole.bytes);
    }
    in_rounds(
        _peers, extents.rounds,
        [&](std::size_t number) {
            Round& round = _peers.round(number);
            Part const sent = extents.part(rank(), number);
            for (std::size_t step = 1; step < world(); ++step) {
                std::size_t const peer = previous(step);
                Part const part = extents.part(peer, number);
                if (part.bytes != 0) {
                    _peers.receive(round, static_cast<int>(peer), receive + part.offset,
                                   part.bytes);
                }
            }
            for (std::size_t step = 1; sent.bytes != 0 && step < world(); ++step) {
                _peers.send(round, static_cast<int>(next(step)), receive + sent.offset, sent.bytes);
            }
        },
        [](std::size_t) {});
}

/// Along a binomial tree whose root is the sender: a rank receives a part, then passes it on while
/// the next one arrives.
ZERO_INLINE void Collectives::broadcast(Flight const& flight) {
    std::size_t const bytes = flight.count * flight.element_bytes;
    std::size_t const rounds = (bytes + half_bytes() - 1) / half_bytes();
    std::size_t const place = (rank() + world() - flight.detail) % world(); // the root has 0
    std::size_t const own_bit = place & (~place + 1);
    auto const rank_at = [&](std::size_t at) {
        return static_cast<int>((at + flight.detail) % world());
    };
    auto const part = [&](std::size_t number) {
        std::size_t const begin = number * half_bytes();
        return Part{begin, zero::detail::smaller(half_bytes(), bytes - begin)};
    };
    auto* const memory = static_cast<std::byte*>(flight.receive);
    std::size_t sent = 0; // number of rounds
    auto const pass_on = [&] {
        Part const now = part(sent);
        for (std::size_t bit = 1; bit < world() && (place == 0 || bit < own_bit); bit *= 2) {
            if (place + bit < world()) {
                _peers.send(_peers.round(1), rank_at(place + bit), memory + now.offset, now.bytes);
            }
        }
        ++sent;
    };
    for (std::size_t number = 0; number < rounds; ++number) {
        if (place != 0) {
            Part const now = part(number);
            _peers.receive(_peers.round(0), rank_at(place - own_bit), memory + now.offset,
                           now.bytes);
            _peers.finish(_peers.round(0));
        }
        _peers.finish(_peers.round(1));
        pass_on();
    }
    _peers.finish(_peers.round(1));
}

/// Every rank sends its values to all others, which is one message per peer for the few integers
/// that engines reduce.
ZERO_INLINE void Collectives::reduce_integers(Flight const& flight) {
    auto* const values = static_cast<std::int64_t*>(flight.receive);
    std::size_t const piece = piece_elements(sizeof(std::int64_t));
    std::size_t const sums = zero::detail::CollectiveCall::sums_of(flight.detail, flight.count);
    auto const count_of = [&](std::size_t number) {
        return zero::detail::smaller(piece, flight.count - number * piece);
    };
    in_rounds(
        _peers, (flight.count + piece - 1) / piece,
        [&](std::size_t number) {
            Round& round = _peers.round(number);
            std::size_t const bytes = count_of(number) * sizeof(std::int64_t);
            for (std::size_t step = 1; step < world(); ++step) {
                std::size_t const peer = previous(step);
                _peers.receive(round, static_cast<int>(peer), scratch_of(number, peer, bytes),
                               bytes);
            }
            for (std::size_t step = 1; step < world(); ++step) {
                _peers.send(round, static_cast<int>(next(step)), values + number * piece, bytes);
            }
        },
        [&](std::size_t number) {
            std::size_t const count = count_of(number);
            std::int64_t* const own = values + number * piece;
            for (std::size_t peer = 0; peer < world(); ++peer) {
                if (peer == rank()) {
                    continue;
                }
                auto const* const other = reinterpret_cast<std::int64_t const*>(
                    scratch_of(number, peer, count * sizeof(std::int64_t)));
                for (std::size_t i = 0; i < count; ++i) {
                    own[i] = number * piece + i < sums ? own[i] + other[i]
                                                       : zero::detail::smaller(own[i], other[i]);
                }
            }
        });
}

} // namespace ZERO_NAMESPACE::mpi::detail

// How communicators are made: from the caller's one, and by a split.

namespace ZERO_NAMESPACE::mpi::detail {

ZERO_COLD_INLINE void check_options(Options const& options) {
    auto const check = [](std::chrono::milliseconds value, char const* name) {
        if (value.count() <= 0) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: mpi::Options::", name, " is ", value.count(), " ms; it must be positive."});
        }
    };
    check(options.time_out, "time_out");
    check(options.heartbeat, "heartbeat");
    check(options.finish_time_out, "finish_time_out");
    if (options.scratch_bytes > most_scratch_bytes) {
        zero::detail::throw_error<InvalidArgument>({"zero: mpi::Options::scratch_bytes is ",
                                                    options.scratch_bytes, "; it must be at most ",
                                                    most_scratch_bytes, '.'});
    }
}

/// Returns whether MPI lets only one thread at a time call it. @throws InvalidArgument if it lets
/// only the main thread
ZERO_COLD_INLINE bool is_serialized() {
    int is_initialised = 0;
    int is_finalised = 0;
    MPI_Initialized(&is_initialised);
    MPI_Finalized(&is_finalised);
    if (is_initialised == 0 || is_finalised != 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: mpi::Communicator needs MPI to be initialised and not finalised; call "
             "MPI_Init_thread before, or use mpi::Session."});
    }
    int level = MPI_THREAD_SINGLE;
    require_success(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_SERIALIZED) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: MPI provides the thread level ",
             level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE",
             ", but collectives run on the thread of a queue. Initialise MPI by MPI_Init_thread "
             "with MPI_THREAD_SERIALIZED if no other part of the program calls MPI meanwhile, "
             "otherwise with MPI_THREAD_MULTIPLE."});
    }
    return level < MPI_THREAD_MULTIPLE;
}

/// Duplicates a communicator without blocking inside MPI.
ZERO_COLD_INLINE MPI_Comm duplicate_of(MPI_Comm communicator, Family& family,
                                       Options const& options) {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    {
        auto const lock = family.lock();
        require_success(MPI_Comm_idup(communicator, &copy, &request), "MPI_Comm_idup");
    }
    zero::detail::PolledTime time(options.time_out);
    for (;;) {
        {
            auto const lock = family.lock();
            int is_done = 0;
            require_success(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
            if (is_done != 0) {
                return copy;
            }
        }
        if (time.poll()) {
            Peers::process_must_abort().store(true);
            zero::detail::throw_error<TimedOut>(
                {"zero: waited ", options.time_out.count(),
                 " ms for the other ranks to construct their mpi::Communicator; all ranks of the "
                 "MPI_Comm must do so."});
        }
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

ZERO_COLD_INLINE std::unique_ptr<Collectives> Collectives::duplicate(MPI_Comm communicator,
                                                                     Options const& options) {
    check_options(options);
    auto const family = std::make_shared<Family>(is_serialized());
    if (communicator == MPI_COMM_NULL) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: mpi::Communicator got MPI_COMM_NULL; a rank outside a group makes no "
             "communicator."});
    }
    Options completed = options;
    completed.memory = options.memory == nullptr ? &HostBackend::default_memory() : options.memory;
    auto collectives = std::make_unique<Collectives>(duplicate_of(communicator, *family, options),
                                                     family, completed);
    collectives->compare_options();
    collectives->share_memory();
    return collectives;
}

/// Compares the options that must be equal on all ranks. @throws LayoutMismatch
ZERO_COLD_INLINE void Collectives::compare_options() {
    Hash hash;
    hash.add(_options.order == Order::library).add(_scratch.size()).add(_options.shares_memory);
    if (!zero::detail::is_equal_on_all_ranks(*this, hash.value())) {
        zero::detail::throw_error<LayoutMismatch>(
            {"zero: the ranks made their mpi::Communicator with different options; "
             "mpi::Options::order, scratch_bytes and shares_memory must be equal on all ranks, and "
             "rank ",
             _peers.rank(), " has ",
             _options.order == Order::rank ? "Order::rank" : "Order::library", ", ",
             _scratch.size(), " bytes and ", _options.shares_memory ? "true" : "false", '.'});
    }
}

ZERO_COLD_INLINE void Collectives::share_memory() {
    host::InlineQueue queue;
    _peers.shared().join(
        place(), _options.shares_memory ? "" : "mpi::Options::shares_memory is false",
        [&](auto const& call, auto const& memory) { enqueue(call, memory, &queue); });
}

ZERO_COLD_INLINE std::unique_ptr<Collectives> Collectives::split(int color, int key) {
    if (color < 0) {
        zero::detail::throw_error<InvalidArgument>({"zero: split got the color ", color,
                                                    " on rank ", _peers.rank(),
                                                    "; colors are not negative."});
    }
    compare_options(); // the ranks meet within the time-out: MPI_Comm_split has none
    MPI_Comm part = MPI_COMM_NULL;
    {
        auto const lock = _peers.family()->lock();
        require_success(MPI_Comm_split(_peers.communicator(), color, key, &part), "MPI_Comm_split");
    }
    auto collectives = std::make_unique<Collectives>(part, _peers.family(), _options);
    collectives->_peers.shared().split_from(_peers.shared());
    collectives->share_memory();
    return collectives;
}

} // namespace ZERO_NAMESPACE::mpi::detail
