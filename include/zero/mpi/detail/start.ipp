#pragma once

#include "collectives.hpp"

#include "../../comm/detail/is_equal_on_all_ranks.hpp"
#include "../../comm/detail/polled_time.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../../host/host_backend.hpp"
#include "limits.hpp"
#include "require_success.hpp"

#include <chrono>
#include <thread>

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
             "with "
             "MPI_THREAD_SERIALIZED if no other part of the program calls MPI meanwhile, otherwise "
             "with MPI_THREAD_MULTIPLE."});
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
    return collectives;
}

/// Compares the options that must be equal on all ranks. @throws LayoutMismatch
ZERO_COLD_INLINE void Collectives::compare_options() {
    Hash hash;
    hash.add(_options.order == Order::library).add(_scratch.size());
    if (!zero::detail::is_equal_on_all_ranks(*this, hash.value())) {
        zero::detail::throw_error<LayoutMismatch>(
            {"zero: the ranks made their mpi::Communicator with different options; "
             "mpi::Options::order and scratch_bytes must be equal on all ranks, and rank ",
             _peers.rank(), " has ",
             _options.order == Order::rank ? "Order::rank" : "Order::library", " and ",
             _scratch.size(), " bytes."});
    }
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
    return std::make_unique<Collectives>(part, _peers.family(), _options);
}

} // namespace ZERO_NAMESPACE::mpi::detail
