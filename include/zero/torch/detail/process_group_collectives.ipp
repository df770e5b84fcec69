#pragma once

#include "process_group_collectives.hpp"

#include "../../comm/detail/call_signature.hpp"
#include "../../comm/detail/extents.hpp"
#include "../../comm/integer_reduction.hpp"
#include "../../comm/traffic_count.hpp"

#include <ATen/core/Tensor.h>
#include <cstring>
#include <exception>
#include <span>

// How the data of each collective move. What a rank does while it waits is in
// process_group_waits.ipp.

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
        begin(flight);
        switch (flight.kind) {
        case CollectiveKind::reduce_scatter: reduce_extents(flight, flight.receive); break;
        case CollectiveKind::all_gather: gather_extents(flight, flight.send); break;
        case CollectiveKind::all_reduce: {
            auto* const own = static_cast<std::byte*>(flight.receive)
                              + flight.cuts[_place.rank] * flight.element_bytes;
            reduce_extents(flight, own);
            gather_extents(flight, own);
            break;
        }
        case CollectiveKind::broadcast: broadcast(flight); break;
        case CollectiveKind::integers: reduce_integers(flight); break;
        }
    } catch (CommunicatorError const&) {
        throw;
    } catch (std::exception const& failure) {
        throw_backend_failure(failure.what());
    }
}

/// The ranks exchange the signatures of their calls. @throws CollectiveMismatch on every rank
ZERO_INLINE void ProcessGroupCollectives::compare(Flight const& flight) {
    std::memcpy(_signature.data_ptr(), flight.signature.data(), sizeof(flight.signature));
    std::vector<std::vector<at::Tensor>> outputs{_signatures.unbind(0)};
    std::vector<at::Tensor> inputs{_signature};
    c10d::AllgatherOptions options;
    options.timeout = _options.time_out;
    finish(*_group->allgather(outputs, inputs, options));
    std::string const difference =
        CallSignature::first_difference({static_cast<std::uint64_t const*>(_signatures.data_ptr()),
                                         _place.world * CallSignature::words});
    if (!difference.empty()) {
        _records.fail(FailureKind::mismatch, difference, false);
        _records.throw_if_final();
    }
}

/// Every rank sends each extent to its owner, which adds the pieces in rank order.
ZERO_INLINE void ProcessGroupCollectives::reduce_extents(Flight const& flight, void* out) {
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
            options.timeout = _options.time_out;
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
        flight.sum.add(static_cast<std::byte*>(out) + round * extents.piece * flight.sum.out_bytes,
                       _pieces.data(), static_cast<int>(_place.world), own.bytes / size);
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
        options.timeout = _options.time_out;
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
    options.timeout = _options.time_out;
    works.push_back(_group->broadcast(tensors, options));
}

} // namespace ZERO_NAMESPACE::torch::detail
