#pragma once

#include "any_communicator.hpp"
#include "settings.hpp"

#include <zero/comm/loopback.hpp>
#ifdef GPT_HAS_MPI
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#endif

#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>

namespace gpt {

/// @brief A communicator of threads, or of processes over MPI.
#ifdef GPT_HAS_MPI
using HostCommunicator = AnyCommunicator<zero::LoopbackCommunicator, zero::mpi::Communicator>;
#else
using HostCommunicator = AnyCommunicator<zero::LoopbackCommunicator>;
#endif
static_assert(zero::Communicator<HostCommunicator>);

/// @brief This process as a rank, if the settings ask for MPI. Owns MPI and the communicator.
class Processes {
public:
    /// @brief Joins the other processes, and sets the number of ranks. Only rank 0 prints.
    void join(Settings& settings) {
        if (settings.communicator == "loopback") {
            return;
        }
#ifdef GPT_HAS_MPI
        _session.emplace();
        zero::mpi::Options options;
        options.time_out = std::chrono::milliseconds(
            static_cast<std::chrono::milliseconds::rep>(settings.time_out * 1000.0));
        options.order =
            settings.order == "rank" ? zero::mpi::Order::rank : zero::mpi::Order::library;
        _mpi.emplace(_session->world(), options);
        _communicator.emplace(&*_mpi);
        settings.world = _mpi->size();
        if (_mpi->rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) {
            throw std::runtime_error("the output of a rank cannot be closed");
        }
#else
        throw std::invalid_argument("this program was built without --communicator mpi; it needs "
                                    "MPI");
#endif
    }

    /// @brief Returns this process as a rank; null if ranks are threads.
    [[nodiscard]] HostCommunicator* communicator() noexcept {
        return _communicator ? &*_communicator : nullptr;
    }

    /// @brief Ends the program with its status: after a failure of one process all processes end.
    int end(int status) noexcept {
#ifdef GPT_HAS_MPI
        std::fflush(stdout);
        if (status != 0 && _session) {
            zero::mpi::Session::abort(status);
        }
#endif
        return status;
    }

private:
#ifdef GPT_HAS_MPI
    std::optional<zero::mpi::Session> _session;
    std::optional<zero::mpi::Communicator> _mpi;
#endif
    std::optional<HostCommunicator> _communicator;
};

} // namespace gpt
