#pragma once

// Shared by the tests that run as several processes. mpirun starts the same executable on all
// ranks, and every rank runs the same test cases in the same order.

#include "comm/conformance.hpp"

#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace zero::test {

/// @brief Starts MPI at the first call. The session lasts for the rest of the process.
inline mpi::Session& mpi_session() {
    static mpi::Session session;
    return session;
}

/// @brief Returns the options of tests: a hang ends after a minute.
inline mpi::Options mpi_options() {
    mpi::Options options;
    options.time_out = std::chrono::seconds(60);
    return options;
}

/// @brief Ends a test case that needs more processes than were started.
inline void skip_without_ranks(int wanted) {
    std::printf("skipped: no MPI job of %d processes or more\n", wanted);
    SUCCEED();
}

/// @brief Runs a test on some of the processes, which are split from the whole group.
/// @tparam Decorator wraps the communicator
template <class Options>
struct MpiFixture {
    inline static MPI_Comm meeting = MPI_COMM_NULL; ///< the ranks of the current run

    static void meet(int /*world*/) { MPI_Barrier(meeting); }

    template <class Body>
    static bool run(int world, Body const& body) {
        int const all = mpi_session().size();
        constexpr std::array<int, 5> tested{1, 2, 3, 4, 7};
        if (world > all || std::find(tested.begin(), tested.end(), world) == tested.end()) {
            return false;
        }
        mpi::Communicator everyone(mpi_session().world(), Options::get());
        bool const is_here = everyone.rank() < world;
        auto group = everyone.split(is_here ? 0 : 1, everyone.rank());
        MPI_Comm_split(mpi_session().world(), is_here ? 0 : 1, everyone.rank(), &meeting);
        if (is_here) {
            body(group);
        }
        MPI_Comm_free(&meeting);
        return is_here;
    }
};

} // namespace zero::test
