#pragma once

#include "../../comm/collective_tag.hpp"
#include "../../comm/detail/collective_call.hpp"
#include "../../comm/detail/flight.hpp"
#include "../../comm/detail/polled_time.hpp"
#include "../../comm/detail/shared_memory.hpp"
#include "../../comm/traffic_count.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../../host/inline_queue.hpp"
#include "process_group_collectives.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

// How the data of each collective move. What a rank does while it waits follows below.

namespace ZERO_NAMESPACE::torch::detail {

using zero::detail::CallSignature;
using zero::detail::Extents;
using zero::detail::Part;

ZERO_INLINE void ProcessGroupCollectives::enqueue(zero::detail::CollectiveCall const& call,
                                                  zero::detail::CollectiveMemory const& memory,
                                                  host::Queue* queue) {
    _flights.enqueue(call, memory, queue, [this](Flight const& flight) { run(flight); });
}

ZERO_INLINE void ProcessGroupCollectives::run(Flight const& flight) {
    try {
        _records.begin(flight.signature);
        if (_records.has_failed()) {
            _records.settle();
            _records.throw_if_final();
        }
        if (_shared.is_shared()) {
            if (_shared.run(flight, [&](zero::detail::Meeting meeting) { meet(meeting); })) {
                return;
            }
        } else if (_compares_calls) {
            compare(flight);
        }
        switch (flight.kind) {
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::exchange: exchange_extents(flight, flight.receive); break;
        case CollectiveKind::all_gather: gather_extents(flight, flight.send); break;
        case CollectiveKind::all_reduce: {
            auto* const own = static_cast<std::byte*>(flight.receive)
                              + flight.cuts[_place.rank] * flight.element_bytes;
            exchange_extents(flight, own);
            gather_extents(flight, own);
            break;
        }
        case CollectiveKind::broadcast: broadcast(flight); break;
        case CollectiveKind::integers: reduce_integers(flight); break;
        }
    } catch (CommunicatorError const&) {
        throw;
    } catch (std::exception const& failure) {
        throw_failure(zero::detail::text({"the backend '", _group->getBackendName(),
                                          "' failed: ", zero::detail::first_line(failure.what())}));
    }
}

/// The ranks exchange the signatures of their calls. @throws CollectiveMismatch on every rank
ZERO_INLINE void ProcessGroupCollectives::compare(Flight const& flight) {
    std::memcpy(_signature.data_ptr(), flight.signature.data(), sizeof(flight.signature));
    std::vector<std::vector<at::Tensor>> outputs{_signatures.unbind(0)};
    std::vector<at::Tensor> inputs{_signature};
    c10d::AllgatherOptions options;
    options.timeout = backend_time_out();
    finish(*_group->allgather(outputs, inputs, options));
    refuse(
        CallSignature::first_difference({static_cast<std::uint64_t const*>(_signatures.data_ptr()),
                                         _place.world * CallSignature::words}));
}

/// Every rank sends each extent to its owner, which adds the pieces in rank order or, in an
/// exchange, keeps them.
ZERO_INLINE void ProcessGroupCollectives::exchange_extents(Flight const& flight, void* out) {
    std::size_t const size = flight.element_bytes;
    Extents const extents(flight, zero::detail::piece_of(_quarter_bytes, size, _place.world - 1));
    auto const* const send = static_cast<std::byte const*>(flight.send);
    auto const post = [&](std::size_t round) {
        std::size_t const own = extents.part(_place.rank, round).bytes;
        std::vector<std::int64_t> sent;
        std::vector<std::int64_t> received;
        std::size_t sent_bytes = 0;
        for (std::size_t peer = 0; peer < _place.world; ++peer) {
            bool const is_self = peer == _place.rank; // its own piece is added in place
            Part const part = extents.part(peer, round);
            std::size_t const bytes = is_self ? 0 : part.bytes;
            if (bytes != 0) {
                std::memcpy(send_memory(round) + sent_bytes, send + part.offset, bytes);
            }
            sent.push_back(static_cast<std::int64_t>(bytes));
            received.push_back(static_cast<std::int64_t>(is_self ? 0 : own));
            sent_bytes += bytes;
        }
        if (_place.world > 1) {
            at::Tensor to = bytes_of(_receive[round % 2], 0, own * (_place.world - 1));
            at::Tensor from = bytes_of(_send[round % 2], 0, sent_bytes);
            c10d::AllToAllOptions options;
            options.timeout = backend_time_out();
            _works[round % 2].push_back(_group->alltoall_base(to, from, received, sent, options));
        }
    };
    auto const take = [&](std::size_t round) {
        finish(_works[round % 2]);
        Part const own = extents.part(_place.rank, round);
        if (own.bytes == 0) {
            return;
        }
        for (std::size_t peer = 0; peer < _place.world; ++peer) {
            std::size_t const slot = peer < _place.rank ? peer : peer - 1;
            _pieces[peer] = peer == _place.rank ? static_cast<void const*>(send + own.offset)
                                                : receive_memory(round) + slot * own.bytes;
        }
        if (flight.sum.add == nullptr) {
            for (std::size_t peer = 0; peer < _place.world; ++peer) {
                std::memcpy(static_cast<std::byte*>(out) + peer * extents.whole(_place.rank).bytes
                                + round * extents.piece * size,
                            _pieces[peer], own.bytes);
            }
            return;
        }
        flight.sum.add(out, flight.sum.held, round * extents.piece, _pieces.data(),
                       static_cast<int>(_place.world), own.bytes / size);
    };
    zero::detail::in_rounds(extents.rounds, post, take);
}

/// One broadcast of each owner, because the extents differ in size.
ZERO_INLINE void ProcessGroupCollectives::gather_extents(Flight const& flight, void const* own) {
    std::size_t const size = flight.element_bytes;
    Extents const extents(flight, zero::detail::piece_of(_quarter_bytes, size, _place.world));
    auto* const receive = static_cast<std::byte*>(flight.receive);
    Part const whole = extents.whole(_place.rank);
    if (whole.bytes != 0 && receive + whole.offset != own) {
        std::memcpy(receive + whole.offset, own, whole.bytes);
    }
    if (_place.world == 1) {
        return;
    }
    std::size_t const slot_bytes = extents.piece * size;
    auto const post = [&](std::size_t round) {
        for (std::size_t owner = 0; owner < _place.world; ++owner) {
            Part const part = extents.part(owner, round);
            if (part.bytes == 0) {
                continue;
            }
            std::size_t const slot = owner * slot_bytes;
            if (owner == _place.rank) {
                std::memcpy(receive_memory(round) + slot, receive + part.offset, part.bytes);
            }
            start_broadcast(_works[round % 2], bytes_of(_receive[round % 2], slot, part.bytes),
                            owner);
        }
    };
    auto const take = [&](std::size_t round) {
        finish(_works[round % 2]);
        for (std::size_t owner = 0; owner < _place.world; ++owner) {
            Part const part = extents.part(owner, round);
            if (owner != _place.rank && part.bytes != 0) {
                std::memcpy(receive + part.offset, receive_memory(round) + owner * slot_bytes,
                            part.bytes);
            }
        }
    };
    zero::detail::in_rounds(extents.rounds, post, take);
}

ZERO_INLINE void ProcessGroupCollectives::broadcast(Flight const& flight) {
    std::size_t const total = flight.count * flight.element_bytes;
    bool const is_root = flight.detail == _place.rank;
    auto* const memory = static_cast<std::byte*>(flight.receive);
    auto const bytes_in = [&](std::size_t round) {
        return zero::detail::smaller(_quarter_bytes, total - round * _quarter_bytes);
    };
    auto const post = [&](std::size_t round) {
        std::size_t const bytes = bytes_in(round);
        if (is_root) {
            std::memcpy(receive_memory(round), memory + round * _quarter_bytes, bytes);
        }
        start_broadcast(_works[round % 2], bytes_of(_receive[round % 2], 0, bytes), flight.detail);
    };
    auto const take = [&](std::size_t round) {
        finish(_works[round % 2]);
        if (!is_root) {
            std::memcpy(memory + round * _quarter_bytes, receive_memory(round), bytes_in(round));
        }
    };
    if (_place.world > 1) {
        zero::detail::in_rounds((total + _quarter_bytes - 1) / _quarter_bytes, post, take);
    }
}

/// Integers have no order of sums, so the backend may add.
ZERO_INLINE void ProcessGroupCollectives::reduce_integers(Flight const& flight) {
    std::size_t const piece = _quarter_bytes / sizeof(std::int64_t);
    auto* const values = static_cast<std::int64_t*>(flight.receive);
    bool const is_sum = static_cast<IntegerReduction>(flight.detail) == IntegerReduction::sum;
    auto const bytes_in = [&](std::size_t round) {
        return zero::detail::smaller(piece, flight.count - round * piece) * sizeof(std::int64_t);
    };
    auto const post = [&](std::size_t round) {
        std::memcpy(receive_memory(round), values + round * piece, bytes_in(round));
        std::vector<at::Tensor> tensors{
            bytes_of(_receive[round % 2], 0, bytes_in(round)).view(at::kLong)};
        c10d::AllreduceOptions options;
        options.reduceOp = is_sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MIN;
        options.timeout = backend_time_out();
        _works[round % 2].push_back(_group->allreduce(tensors, options));
    };
    auto const take = [&](std::size_t round) {
        finish(_works[round % 2]);
        std::memcpy(values + round * piece, receive_memory(round), bytes_in(round));
    };
    if (_place.world > 1) {
        zero::detail::in_rounds((flight.count + piece - 1) / piece, post, take);
    }
}

ZERO_INLINE void ProcessGroupCollectives::start_broadcast(Works& works, at::Tensor const& buffer,
                                                          std::size_t root) {
    std::vector<at::Tensor> tensors{buffer};
    c10d::BroadcastOptions options;
    options.rootRank = static_cast<std::int64_t>(root);
    options.timeout = backend_time_out();
    works.push_back(_group->broadcast(tensors, options));
}

} // namespace ZERO_NAMESPACE::torch::detail

// How a rank joins and leaves, and what it does while it waits.

namespace ZERO_NAMESPACE::torch::detail {

inline constexpr std::size_t most_process_group_scratch_bytes = std::size_t{1} << 30U;
inline constexpr std::size_t least_process_group_scratch_bytes = 4096; ///< minimum per rank

/// The time between two reads of the store while a rank waits.
inline constexpr std::chrono::milliseconds time_between_looks{100};

/// Returns a name that differs between the process groups of a store. Later versions of LibTorch
/// than 2.4 have renamed it.
template <class Backend>
std::string const& name_of(Backend const& group) {
    if constexpr (requires { group.getGroupUid(); }) {
        return group.getGroupUid();
    } else {
        return group.getGroupName();
    }
}

/// Returns the group. @throws InvalidArgument
ZERO_COLD_INLINE c10::intrusive_ptr<c10d::Backend>
checked_group(c10::intrusive_ptr<c10d::Backend> group, ProcessGroupOptions const& options) {
    if (group == nullptr) {
        zero::detail::throw_error<InvalidArgument>({"zero: torch::ProcessGroupCommunicator got no "
                                                    "backend; a rank outside a process group makes "
                                                    "no communicator."});
    }
    if (options.time_out.count() <= 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: torch::ProcessGroupOptions::time_out is ", options.time_out.count(),
             " ms; it must be positive."});
    }
    if (options.scratch_bytes > most_process_group_scratch_bytes) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: torch::ProcessGroupOptions::scratch_bytes is ", options.scratch_bytes,
             "; it must be at most ", most_process_group_scratch_bytes, '.'});
    }
    return group;
}

ZERO_COLD_INLINE
ProcessGroupCollectives::ProcessGroupCollectives(c10::intrusive_ptr<c10d::Backend> group,
                                                 ProcessGroupOptions const& options)
    : _group(checked_group(std::move(group), options)), _options(options),
      _exceptions(std::uncaught_exceptions()), _place{static_cast<std::size_t>(_group->getRank()),
                                                      static_cast<std::size_t>(_group->getSize())},
      _quarter_bytes(zero::detail::larger(options.scratch_bytes,
                                          least_process_group_scratch_bytes * _place.world)
                     / 512 * 128),
      _pieces(_place.world),
      _records(options.store, name_of(*_group), _group->getRank(), _group->getSize()),
      _flights(_place.world) {
    if (_options.ignores_broken_pipes) {
        ignore_broken_pipes();
    }
    for (std::size_t parity = 0; parity < 2; ++parity) {
        _send[parity] = at::empty({static_cast<std::int64_t>(_quarter_bytes)}, at::kByte);
        _receive[parity] = at::empty({static_cast<std::int64_t>(_quarter_bytes)}, at::kByte);
    }
    auto const words = static_cast<std::int64_t>(zero::detail::CallSignature::words);
    _signature = at::empty({words}, at::kLong);
    _signatures = at::empty({_group->getSize(), words}, at::kLong);
}

ZERO_COLD_INLINE ProcessGroupCollectives::~ProcessGroupCollectives() {
    if (std::uncaught_exceptions() > _exceptions) {
        abort(zero::detail::text(
                  {"rank ", _place.rank, " left the group while an exception unwound"}),
              true);
    }
    _flights.synchronise();
    _records.tell_leaving();
}

ZERO_COLD_INLINE void ProcessGroupCollectives::join() {
    Hash hash;
    hash.add(_quarter_bytes).add(_options.compares_calls).add(_options.shares_memory);
    if (!zero::detail::is_equal_on_all_ranks(*this, hash.value())) {
        zero::detail::throw_error<LayoutMismatch>(
            {"zero: the ranks made their torch::ProcessGroupCommunicator with different options; "
             "torch::ProcessGroupOptions::scratch_bytes, compares_calls and shares_memory must be "
             "equal on all ranks, and rank ",
             _place.rank, " has ", scratch_bytes(), " bytes, ",
             _options.compares_calls ? "true" : "false", " and ",
             _options.shares_memory ? "true" : "false", '.'});
    }
    host::InlineQueue queue;
    _shared.join(_place,
                 _options.shares_memory ? "" : "torch::ProcessGroupOptions::shares_memory is false",
                 [&](auto const& call, auto const& memory) { enqueue(call, memory, &queue); });
    _compares_calls = _options.compares_calls && _place.world > 1;
}

ZERO_INLINE void ProcessGroupCollectives::finish(Works& works) {
    for (auto const& work : works) {
        finish(*work);
    }
    works.clear();
}

/// Waits in slices, and looks for failures of the peers between them.
/// @param is_over waits for at most a slice
template <class Over>
void ProcessGroupCollectives::wait_until(Over const& is_over) {
    zero::detail::PolledTime time(_options.time_out);
    auto const slice = zero::detail::smaller(
        time_between_looks, std::chrono::duration_cast<std::chrono::milliseconds>(time.slice()));
    bool has_told = false;
    while (!is_over(slice)) {
        _records.look();
        _records.throw_if_final();
        if (!has_told) {
            _records.tell_waiting();
            has_told = true;
        }
        if (time.poll()) {
            throw_time_out();
        }
    }
}

/// Waits for a transfer, which itself cannot be aborted.
ZERO_INLINE void ProcessGroupCollectives::finish(c10d::Work& work) {
    wait_until([&](std::chrono::milliseconds slice) {
        for (bool was_complete = work.isCompleted();; was_complete = true) {
            try {
                work.wait(slice);
                return true;
            } catch (std::exception const&) {
                if (was_complete) { // otherwise the slice may have ended
                    throw;
                }
            }
            if (!work.isCompleted()) {
                return false;
            } // the next wait reports how it ended
        }
    });
}

/// Waits for the peers in shared memory. One whose process has ended may have come before.
ZERO_INLINE void ProcessGroupCollectives::meet(zero::detail::Meeting meeting) {
    _shared.come(meeting);
    std::size_t ended = _place.world;
    wait_until([&](std::chrono::milliseconds slice) {
        if (_shared.wait(meeting, slice)) {
            return true;
        }
        if (ended != _place.world) {
            throw_failure(zero::detail::text({"the process of rank ", ended, " has ended"}));
        }
        ended = _shared.ended(meeting);
        return false;
    });
    if (meeting == zero::detail::Meeting::called) {
        refuse(_shared.difference());
    }
}

/// Throws if the calls of the ranks differ. @throws CollectiveMismatch
ZERO_INLINE void ProcessGroupCollectives::refuse(std::string_view difference) {
    if (!difference.empty()) {
        _records.fail(FailureKind::mismatch, difference, false);
        _records.throw_if_final();
    }
}

ZERO_COLD_INLINE void ProcessGroupCollectives::throw_time_out() {
    std::string const cause =
        zero::detail::text({"rank ", _place.rank, " waited ", _options.time_out.count(), " ms for ",
                            _records.missing(), ", in ", _records.current_call()});
    _records.fail(FailureKind::aborted, cause, false);
    zero::detail::throw_error<TimedOut>(
        {"zero: ", cause,
         "; every rank must call the same collectives. If a rank needs longer, raise "
         "torch::ProcessGroupOptions::time_out."});
}

/// Reports that a peer has ended. One that ended because of a failure wrote its cause before. The
/// cause says what to do, because peers and other threads of this rank may read it first.
ZERO_COLD_INLINE void ProcessGroupCollectives::throw_failure(std::string_view what) {
    std::string const cause = zero::detail::text(
        {"rank ", _place.rank, " was in ", _records.current_call(), ", and ", what,
         ". A peer has ended, or the network has failed; start all ranks again, from a "
         "checkpoint"});
    _records.look();
    _records.settle();
    _records.throw_if_final();
    _records.fail(FailureKind::aborted, cause, false);
    zero::detail::throw_error<Aborted>({"zero: ", cause, '.'});
}

} // namespace ZERO_NAMESPACE::torch::detail
