#pragma once

#include "process_group_collectives.hpp"

#include "../../comm/detail/call_signature.hpp"
#include "../../comm/detail/is_equal_on_all_ranks.hpp"
#include "../../comm/detail/polled_time.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "ignore_broken_pipes.hpp"

#include <ATen/ops/empty.h>
#include <chrono>
#include <exception>
#include <utility>

// How a rank joins and leaves, and what it does while it waits.

namespace ZERO_NAMESPACE::torch::detail {

inline constexpr std::size_t most_process_group_scratch_bytes = std::size_t{1} << 30U;
inline constexpr std::size_t least_process_group_scratch_bytes = 4096; ///< minimum per rank

/// The time between two looks into the store while a rank waits.
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
        zero::detail::throw_error<InvalidArgument>(
            {"zero: ProcessGroupCommunicator got no backend; a rank outside a process group makes "
             "no communicator."});
    }
    if (options.time_out.count() <= 0) {
        zero::detail::throw_error<InvalidArgument>({"zero: ProcessGroupOptions::time_out is ",
                                                    options.time_out.count(),
                                                    " ms; it must be positive."});
    }
    if (options.scratch_bytes > most_process_group_scratch_bytes) {
        zero::detail::throw_error<InvalidArgument>({"zero: ProcessGroupOptions::scratch_bytes is ",
                                                    options.scratch_bytes, "; it must be at most ",
                                                    most_process_group_scratch_bytes, '.'});
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

ZERO_COLD_INLINE void ProcessGroupCollectives::compare_options() {
    Hash hash;
    hash.add(_quarter_bytes).add(_options.compares_calls);
    if (!zero::detail::is_equal_on_all_ranks(*this, hash.value())) {
        zero::detail::throw_error<LayoutMismatch>(
            {"zero: the ranks made their ProcessGroupCommunicator with different options; "
             "ProcessGroupOptions::scratch_bytes and compares_calls must be equal on all ranks, "
             "and rank ",
             _place.rank, " has ", scratch_bytes(), " bytes and ",
             _options.compares_calls ? "true" : "false", '.'});
    }
    _compares_calls = _options.compares_calls && _place.world > 1;
}

ZERO_INLINE void ProcessGroupCollectives::begin(Flight const& flight) {
    _records.begin(flight.signature);
    if (_records.has_failed()) {
        _records.settle();
        _records.throw_if_final();
    }
    if (_compares_calls) {
        compare(flight);
    }
}

ZERO_INLINE void ProcessGroupCollectives::finish(Works& works) {
    for (auto const& work : works) {
        finish(*work);
    }
    works.clear();
}

/// Waits for a transfer in slices, and looks for failures of the peers between them: the transfer
/// itself cannot be aborted.
ZERO_INLINE void ProcessGroupCollectives::finish(c10d::Work& work) {
    zero::detail::PolledTime time(_options.time_out);
    auto const slice = zero::detail::smaller(
        time_between_looks, std::chrono::duration_cast<std::chrono::milliseconds>(time.slice()));
    bool has_told = false;
    for (;;) {
        bool const was_complete = work.isCompleted();
        try {
            work.wait(slice);
            return;
        } catch (std::exception const&) {
            if (was_complete) { // otherwise the slice may have ended
                throw;
            }
        }
        if (work.isCompleted()) {
            continue; // the next wait reports how it ended
        }
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

ZERO_COLD_INLINE void ProcessGroupCollectives::throw_time_out() {
    std::string const cause =
        zero::detail::text({"rank ", _place.rank, " waited ", _options.time_out.count(), " ms for ",
                            _records.missing(), ", in ", _records.current_call()});
    _records.fail(FailureKind::aborted, cause, false);
    zero::detail::throw_error<TimedOut>(
        {"zero: ", cause,
         "; every rank must call the same collectives. If a rank needs longer, raise "
         "ProcessGroupOptions::time_out."});
}

/// The backend fails when a peer has ended. A peer that ended because of a failure wrote its cause
/// before.
ZERO_COLD_INLINE void ProcessGroupCollectives::throw_backend_failure(std::string_view text) {
    std::string const cause = zero::detail::text(
        {"rank ", _place.rank, " was in ", _records.current_call(), ", and the backend '",
         _group->getBackendName(), "' failed: ", zero::detail::first_line(text)});
    _records.look();
    _records.settle();
    _records.throw_if_final();
    _records.fail(FailureKind::aborted, cause, false);
    zero::detail::throw_error<Aborted>(
        {"zero: ", cause,
         ". A peer has ended, or the network has failed; start all ranks again, from a "
         "checkpoint."});
}

} // namespace ZERO_NAMESPACE::torch::detail
