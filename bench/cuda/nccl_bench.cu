#include "device_array.cuh"
#include "device_time.cuh"

#include <zero/cuda/nccl.cuh>
#include <zero/cuda/owned_stream.hpp>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// A reduce-scatter over NCCL in rank order; its twin adds in the order of NCCL. Ranks are threads,
// on one device where there are not enough, which needs NCCL 2.30. The times are those of rank 0 on
// its device, averaged over calls without a flush of caches. Bytes are those of the send buffer.
namespace zero {

namespace {

using Communicator = cuda::NcclCommunicator;
constexpr std::size_t most_bytes = std::size_t{64} << 20U;
constexpr int most_ranks = 4;

int made_current(int device) {
    cuda::detail::check(cudaSetDevice(device), "cudaSetDevice");
    return device;
}

/// The stream and the memory of a rank, the same for all groups.
struct Lane {
    explicit Lane(int on) : device(made_current(on)) {
        bench::fill_normal(floats.data(), most_bytes / 4, bench::gradient_deviation);
        bench::fill_normal(halves.data(), most_bytes / 2, bench::gradient_deviation);
    }
    void get(float const*& send) const { send = floats.data(); }
    void get(bfloat16 const*& send) const { send = halves.data(); }

    int device;
    cuda::OwnedStream stream;
    bench::DeviceArray<float> floats{most_bytes / 4};
    bench::DeviceArray<bfloat16> halves{most_bytes / 2};
    bench::DeviceArray<char> received{most_bytes / 2};
};

std::vector<std::unique_ptr<Lane>> const& lanes() {
    static auto const all = [] {
        int devices = 0;
        cuda::detail::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
        std::vector<std::unique_ptr<Lane>> made;
        for (int rank = 0; rank < most_ranks; ++rank) {
            made.push_back(std::make_unique<Lane>(rank % devices));
        }
        return made;
    }();
    return all;
}

class Group {
public:
    Group(int world, cuda::NcclOrder order) {
        std::vector<int> devices;
        for (int rank = 0; rank < world; ++rank) {
            devices.push_back(lanes()[static_cast<std::size_t>(rank)]->device);
        }
        // Kernels that wait for one another must fit on a device together.
        _ranks = Communicator::make_group(devices, {.time_out = std::chrono::seconds(5),
                                                    .finish_time_out = std::chrono::seconds(2),
                                                    .watch_interval = std::chrono::milliseconds(50),
                                                    .max_ctas = 4,
                                                    .order = order});
    }
    Group(Group const&) = delete;
    Group& operator=(Group const&) = delete;
    /// Ends the communicators together: one may wait for another.
    ~Group() {
        run([this](std::size_t rank, std::barrier<>&) {
            Communicator const own(std::move(_ranks[rank]));
        });
    }

    /// Returns the seconds of a call on rank 0.
    template <class T>
    double seconds(std::size_t elements, int calls) {
        double milliseconds = 0.0;
        run([&](std::size_t rank, std::barrier<>& meeting) {
            Lane const& lane = *lanes()[rank];
            T const* send = nullptr;
            lane.get(send);
            auto* const receive = reinterpret_cast<T*>(lane.received.data());
            std::vector<std::size_t> cuts;
            for (std::size_t cut = 0; cut <= _ranks.size(); ++cut) {
                cuts.push_back(elements / _ranks.size() * cut);
            }
            auto const reduce = [&](int times) {
                for (int i = 0; i < times; ++i) {
                    _ranks[rank].reduce_scatter(send, receive, cuts, lane.stream.get());
                }
            };
            std::array<cudaEvent_t, 2> events{};
            for (cudaEvent_t& event : events) {
                cuda::detail::check(cudaEventCreate(&event), "cudaEventCreate");
            }
            reduce(1);
            _ranks[rank].synchronise();
            meeting.arrive_and_wait();
            cuda::detail::check(cudaEventRecord(events[0], lane.stream.get()), "cudaEventRecord");
            reduce(calls);
            cuda::detail::check(cudaEventRecord(events[1], lane.stream.get()), "cudaEventRecord");
            _ranks[rank].synchronise();
            cuda::detail::check(cudaEventSynchronize(events[1]), "cudaEventSynchronize");
            meeting.arrive_and_wait();
            float took = 0.0F;
            cuda::detail::check(cudaEventElapsedTime(&took, events[0], events[1]),
                                "cudaEventElapsedTime");
            milliseconds = rank == 0 ? took : milliseconds;
            for (cudaEvent_t const event : events) {
                cuda::detail::ignore(cudaEventDestroy(event));
            }
        });
        return milliseconds * 1e-3 / calls;
    }

private:
    /// Runs `body(rank, meeting)` on a thread of each rank.
    template <class Body>
    void run(Body const& body) {
        std::barrier<> meeting(static_cast<std::ptrdiff_t>(_ranks.size()));
        std::vector<std::exception_ptr> failures(_ranks.size());
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < _ranks.size(); ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    made_current(lanes()[rank]->device);
                    body(rank, meeting);
                } catch (...) {
                    failures[rank] = std::current_exception();
                    _ranks[rank].abort("a rank failed");
                    meeting.arrive_and_drop();
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        for (std::exception_ptr const& failure : failures) {
            if (failure) {
                std::rethrow_exception(failure);
            }
        }
    }

    std::vector<Communicator> _ranks;
};

struct OneGroup {
    std::unique_ptr<Group> group;
    std::string failure; ///< not tried again: it may have been a time-out
};

OneGroup& group_of(int world, cuda::NcclOrder order) {
    (void)lanes(); // before the groups, which use them to the end
    static std::map<std::pair<int, cuda::NcclOrder>, OneGroup> groups;
    return groups[{world, order}];
}

template <class T>
void reduce_scatter(benchmark::State& state, int world, cuda::NcclOrder order) {
    if (bench::skips_without_device(state)) {
        return;
    }
    auto const elements = static_cast<std::size_t>(state.range(0));
    std::size_t const bytes = elements * sizeof(T);
    auto& [group, failure] = group_of(world, order);
    try {
        if (group == nullptr && failure.empty()) {
            group = std::make_unique<Group>(world, order);
        }
        for (auto _ : state) {
            if (failure.empty()) {
                state.SetIterationTime(
                    group->template seconds<T>(elements, bytes <= (1U << 20U) ? 50 : 10));
            }
        }
    } catch (std::exception const& error) {
        failure = error.what();
    }
    if (!failure.empty()) {
        state.SkipWithError(failure.c_str());
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

template <class T>
void add(char const* type, int world, cuda::NcclOrder order) {
    std::string const name = std::string("reduce_scatter/cuda_nccl_") + type + "_W"
                             + std::to_string(world)
                             + (order == cuda::NcclOrder::rank ? "/rank" : "/twin");
    auto* const added = benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { reduce_scatter<T>(state, world, order); });
    added->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
    for (std::size_t const kibibytes : {64U, 1024U, 16384U, 65536U}) {
        added->Arg(static_cast<std::int64_t>(kibibytes * 1024 / sizeof(T)));
    }
}

[[maybe_unused]] bool const is_registered = [] {
    // For several ranks on a device. CUDA and NCCL read them later.
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    for (int const world : {2, most_ranks}) {
        for (auto const order : {cuda::NcclOrder::library, cuda::NcclOrder::rank}) {
            add<float>("float32", world, order);
            add<bfloat16>("bfloat16", world, order);
        }
    }
    return true;
}();

} // namespace

} // namespace zero
