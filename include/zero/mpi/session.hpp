#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/mpi.hpp"

namespace ZERO_NAMESPACE::mpi {

/// @brief Initialises MPI for the scope of a program, with MPI_THREAD_MULTIPLE if MPI provides it.
///
/// For programs that do not initialise MPI themselves; `mpi::Communicator` never does. One object
/// per process, on the main thread; declare it before every communicator. The destructor calls
/// MPI_Finalize. While an exception leaves the scope, or after a failure that left a transfer
/// pending, it calls MPI_Abort instead, which ends all processes.
class Session {
public:
    /// @brief Initialises MPI. @throws InvalidArgument if MPI is already initialised; MpiError
    Session();

    Session(Session const&) = delete;
    Session& operator=(Session const&) = delete;
    ~Session();

    /// @brief Returns all processes that the launcher started.
    [[nodiscard]] MPI_Comm world() const noexcept { return MPI_COMM_WORLD; }

    /// @brief Returns the number of this process, from 0.
    [[nodiscard]] int rank() const noexcept { return _rank; }

    /// @brief Returns the number of processes.
    [[nodiscard]] int size() const noexcept { return _size; }

    /// @brief Ends all processes with MPI_Abort; this one after five seconds at the latest, even if
    /// MPI waits for a machine that is gone. @param code the exit status, not 0
    [[noreturn]] static void abort(int code) noexcept;

private:
    int _exceptions; ///< number of exceptions in flight at construction
    int _rank = 0;
    int _size = 1;
};

} // namespace ZERO_NAMESPACE::mpi

#if !defined(ZERO_COMPILED)
#include "detail/session.ipp"
#endif
