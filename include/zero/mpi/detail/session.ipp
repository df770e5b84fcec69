#pragma once

#include "../session.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "peers.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

// Starts and ends MPI. The requests of collectives are polled in `peers.ipp`.

namespace ZERO_NAMESPACE::mpi {

ZERO_COLD_INLINE Session::Session() : _exceptions(std::uncaught_exceptions()) {
    int is_initialised = 0;
    MPI_Initialized(&is_initialised);
    if (is_initialised != 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: mpi::Session found MPI initialised; a program that calls MPI_Init_thread "
             "itself needs no session, and a process has at most one."});
    }
    int level = MPI_THREAD_SINGLE;
    detail::require_success(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                            "MPI_Init_thread");
    MPI_Comm_rank(MPI_COMM_WORLD, &_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &_size);
}

ZERO_COLD_INLINE Session::~Session() {
    if (std::uncaught_exceptions() > _exceptions || detail::Peers::process_must_abort().load()) {
        abort(1);
    }
    int is_finalised = 0;
    MPI_Finalized(&is_finalised);
    if (is_finalised == 0) {
        MPI_Finalize();
    }
}

ZERO_COLD_INLINE void Session::abort(int code) noexcept {
    try {
        std::thread([code] {
            std::this_thread::sleep_for(std::chrono::seconds(5));
            std::_Exit(code);
        }).detach();
    } catch (...) { // no thread: MPI_Abort alone
    }
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
}

} // namespace ZERO_NAMESPACE::mpi
