#pragma once

#include "settings.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/traffic_count.hpp>
#ifdef GPT_HAS_MPI
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#endif

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>

namespace gpt {

#ifdef GPT_HAS_MPI
using OneLevel = zero::AnyCommunicator<zero::LoopbackCommunicator, zero::mpi::Communicator>;
#else
using OneLevel = zero::AnyCommunicator<zero::LoopbackCommunicator>;
#endif

/// @brief Two levels that count their traffic.
class Levels : public zero::Hierarchical<OneLevel, OneLevel> {
public:
    Levels(OneLevel& intra, OneLevel& inter)
        : Hierarchical(intra, inter), _intra(&intra), _inter(&inter) {}

    /// @brief Two levels do not exchange; `train_gpt` refuses codecs of gradients with them.
    template <class T>
    void exchange(T const* /*send*/, T* /*receive*/, std::span<std::size_t const> /*cuts*/,
                  Queue /*queue*/, zero::CollectiveTag /*tag*/ = {}) {
        throw std::logic_error("these ranks cannot exchange");
    }

    /// @brief Returns the traffic of both levels.
    [[nodiscard]] zero::TrafficCount traffic() const {
        zero::TrafficCount both = _intra->traffic();
        zero::TrafficCount const between = _inter->traffic();
        for (std::size_t kind = 0; kind < zero::collective_kinds; ++kind) {
            both.kinds[kind].calls += between.kinds[kind].calls;
            both.kinds[kind].elements += between.kinds[kind].elements;
            both.kinds[kind].bytes += between.kinds[kind].bytes;
        }
        return both;
    }
    void reset_traffic() {
        _intra->reset_traffic();
        _inter->reset_traffic();
    }

private:
    OneLevel* _intra;
    OneLevel* _inter;
};

/// @brief A communicator of threads, or of processes over MPI, on one or two levels.
#ifdef GPT_HAS_MPI
using HostCommunicator =
    zero::AnyCommunicator<zero::LoopbackCommunicator, zero::mpi::Communicator, Levels>;
#else
using HostCommunicator = zero::AnyCommunicator<zero::LoopbackCommunicator, Levels>;
#endif
static_assert(zero::Communicator<HostCommunicator>);

/// @brief The groups of which `inner_ranks` consecutive ranks are close to each other. @throws
/// std::invalid_argument unless their number divides that of all ranks
template <class C>
class Groups {
public:
    Groups(C& all, int inner_ranks)
        : _inside(all.split(all.rank() / checked(all, inner_ranks), all.rank())),
          _between(all.split(all.rank() % inner_ranks, all.rank())), _levels(_intra, _inter) {}

    [[nodiscard]] HostCommunicator& communicator() noexcept { return _communicator; }

private:
    static int checked(C const& all, int inner_ranks) {
        if (all.size() % inner_ranks != 0) {
            throw std::invalid_argument("--inner-ranks must divide the number of ranks");
        }
        return inner_ranks;
    }

    C _inside;
    C _between;
    OneLevel _intra{&_inside};
    OneLevel _inter{&_between};
    Levels _levels;
    HostCommunicator _communicator{&_levels};
};

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
        settings.world = _mpi->size();
        if (settings.inner_ranks == 1) {
            _communicator.emplace(&*_mpi);
        } else {
            _communicator.emplace(_groups.emplace(*_mpi, settings.inner_ranks).communicator());
        }
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
    std::optional<Groups<zero::mpi::Communicator>> _groups;
#endif
    std::optional<HostCommunicator> _communicator;
};

} // namespace gpt
