#pragma once

#include "fake_nccl.hpp"
#include "fake_system.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/cuda/nccl_communicator.hpp>
#include <zero/host/host_backend.hpp>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace zero::test {

struct FakeWorld {
    FakeNccl nccl;
    FakeSystem system;
};

/// @brief How the communicators over fakes that are made next add.
struct FakeSums {
    cuda::NcclOrder order = cuda::NcclOrder::library;
    std::size_t scratch_bytes = std::size_t{8} << 20U; ///< of `NcclOrder::rank`
    bool adds_backwards = false;                       ///< see `FakeNccl`
};

/// @brief Sets it for a scope, on the main thread.
class FakeSumsScope {
public:
    explicit FakeSumsScope(FakeSums const& sums) { current() = sums; }
    FakeSumsScope(FakeSumsScope const&) = delete;
    FakeSumsScope& operator=(FakeSumsScope const&) = delete;
    ~FakeSumsScope() { current() = {}; }

    static FakeSums& current() {
        static FakeSums sums;
        return sums;
    }
};

/// @brief Owns the fakes of a communicator. It must be the first base class, so that the fakes are
/// destroyed after the communicator.
template <class World>
struct FakeWorldKeeper {
    std::shared_ptr<World> fakes;
};

/// @brief The communicator over the fake NCCL; its groups are made as `run_ranks` makes them.
/// @tparam World the fakes, for the streams of the backend
template <cuda::NcclMode mode, class Backend = HostBackend, class World = FakeWorld>
class FakeNcclCommunicator : public FakeWorldKeeper<World>,
                             public cuda::BasicNcclCommunicator<Backend> {
    using Base = cuda::BasicNcclCommunicator<Backend>;

public:
    static std::vector<FakeNcclCommunicator> make_group(int world, LoopbackOptions const& options) {
        auto const fakes = std::make_shared<World>();
        std::vector<int> devices(static_cast<std::size_t>(world));
        std::iota(devices.begin(), devices.end(), 0);
        FakeSums const& sums = FakeSumsScope::current();
        fakes->nccl.adds_backwards = sums.adds_backwards;
        cuda::NcclOptions const nccl_options{.time_out = options.time_out,
                                             .finish_time_out = std::chrono::seconds(20),
                                             .watch_interval = std::chrono::milliseconds(5),
                                             .mode = mode,
                                             .order = sums.order,
                                             .scratch_bytes = sums.scratch_bytes};
        std::vector<FakeNcclCommunicator> ranks;
        for (auto& rank : Base::make_group({&fakes->nccl, &fakes->system}, devices, nccl_options)) {
            ranks.push_back(FakeNcclCommunicator(fakes, std::move(rank)));
        }
        return ranks;
    }

    [[nodiscard]] FakeNcclCommunicator split(int color, int key) {
        return FakeNcclCommunicator(this->fakes, Base::split(color, key));
    }

private:
    FakeNcclCommunicator(std::shared_ptr<World> world, Base&& base)
        : FakeWorldKeeper<World>{std::move(world)}, Base(std::move(base)) {}
};

/// @brief Runs `body(communicator)` on each rank, as `run_ranks` does, but no rank ends before all
/// bodies have. Throws if the ranks used NCCL in a way that would break it.
///
/// `run_ranks` aborts the communicator of a rank that has ended, which in NCCL breaks the
/// collectives of its peers.
template <class Communicator, class Body>
void run_nccl_ranks(int world, Body const& body) {
    std::mutex mutex;
    std::condition_variable changed;
    int ended = 0;
    struct End {
        std::mutex& mutex;
        std::condition_variable& changed;
        int& ended;
        ~End() {
            {
                std::lock_guard const lock(mutex);
                ++ended;
            }
            changed.notify_all();
        }
    };
    decltype(Communicator::fakes) fakes;
    run_ranks<Communicator>(world, {.time_out = std::chrono::seconds(60)},
                            [&](Communicator& communicator) {
                                if (communicator.rank() == 0) {
                                    fakes = communicator.fakes;
                                }
                                {
                                    End const end{mutex, changed, ended};
                                    body(communicator);
                                }
                                std::unique_lock lock(mutex);
                                changed.wait(lock, [&] { return ended == world; });
                            });
    if (fakes->nccl.collisions != 0) {
        throw std::logic_error("a call of NCCL met a job that no call had joined");
    }
}

} // namespace zero::test
