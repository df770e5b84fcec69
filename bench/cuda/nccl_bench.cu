#include "cuda/kept_pool.hpp"
#include "cuda/shared_device.cuh"
#include "device_array.cuh"
#include "device_time.cuh"
#include "training.cuh"

#include <zero/cuda/nccl.cuh>
#include <zero/cuda/owned_stream.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// A reduce-scatter over NCCL in rank order, and a step of stage 2 with clipping on bfloat16
// parameters with it or with a tree; their twins add in the order of NCCL. Ranks are threads, on
// one device where there are not enough, which needs NCCL 2.30. The times are those of rank 0 on
// its device, averaged over calls without a flush of caches. Bytes are those of the send buffer, or
// of the gradients.
namespace zero {

namespace {

using Communicator = cuda::NcclCommunicatorOn<test::MeetingBackend>;
using Stage = ZeroStage<2, Parameters<bfloat16>, Communicator>;
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
    cuda::OwnedStream communication{cuda::StreamPriority::highest};
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
            test::prepare_pool(rank % devices);
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
        double seconds = 0.0;
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
            reduce(1);
            double const took = seconds_of(rank, meeting, [&] { reduce(calls); });
            seconds = rank == 0 ? took : seconds;
        });
        return seconds / calls;
    }

    /// Returns the seconds of a step on rank 0.
    template <class Stage>
    double seconds_of_step(std::vector<std::size_t> const& sizes, std::size_t micro_batches,
                           int steps) {
        double seconds = 0.0;
        run([&](std::size_t rank, std::barrier<>& meeting) {
            test::MeetingBackend::meeting() = &meeting;
            Lane const& lane = *lanes()[rank];
            typename Stage::Options options;
            options.compute_queue = lane.stream.get();
            options.communication_queue = lane.communication.get();
            options.gradient_clipping = 1.0F;
            options.reduction.micro_batches = micro_batches;
            bench::Training<Stage> training(_ranks[rank], sizes, options);
            double const took = seconds_of(rank, meeting, [&] {
                for (int i = 0; i < steps; ++i) {
                    training.backward();
                    training.step();
                }
            });
            if (training.engine().last_report().is_skipped) {
                throw std::runtime_error("a step was skipped: it moved nothing");
            }
            settle(rank, meeting); // no rank frees while the kernel of another runs
            seconds = rank == 0 ? took : seconds;
        });
        return seconds / steps;
    }

private:
    void settle(std::size_t rank, std::barrier<>& meeting) {
        _ranks[rank].synchronise();
        for (cuda::OwnedStream const* stream :
             {&lanes()[rank]->stream, &lanes()[rank]->communication}) {
            cuda::detail::check(cudaStreamSynchronize(stream->get()), "cudaStreamSynchronize");
        }
        meeting.arrive_and_wait();
    }

    /// Returns the seconds of what `enqueue()` enqueues on the stream of a rank.
    template <class Enqueue>
    double seconds_of(std::size_t rank, std::barrier<>& meeting, Enqueue const& enqueue) {
        cudaStream_t const stream = lanes()[rank]->stream.get();
        std::array<cudaEvent_t, 2> events{};
        for (cudaEvent_t& event : events) {
            cuda::detail::check(cudaEventCreate(&event), "cudaEventCreate");
        }
        settle(rank, meeting);
        cuda::detail::check(cudaEventRecord(events[0], stream), "cudaEventRecord");
        enqueue();
        cuda::detail::check(cudaEventRecord(events[1], stream), "cudaEventRecord");
        settle(rank, meeting);
        float milliseconds = 0.0F;
        cuda::detail::check(cudaEventElapsedTime(&milliseconds, events[0], events[1]),
                            "cudaEventElapsedTime");
        for (cudaEvent_t const event : events) {
            cuda::detail::ignore(cudaEventDestroy(event));
        }
        return milliseconds * 1e-3;
    }

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

/// Times `seconds(group)`, of work on `bytes` bytes.
template <class Seconds>
void time_group(benchmark::State& state, int world, cuda::NcclOrder order, std::size_t bytes,
                Seconds const& seconds) {
    if (bench::skips_without_device(state)) {
        return;
    }
    auto& [group, failure] = group_of(world, order);
    try {
        if (group == nullptr && failure.empty()) {
            group = std::make_unique<Group>(world, order);
        }
        for (auto _ : state) {
            if (failure.empty()) {
                state.SetIterationTime(seconds(*group));
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
void reduce_scatter(benchmark::State& state, int world, cuda::NcclOrder order) {
    auto const elements = static_cast<std::size_t>(state.range(0));
    std::size_t const bytes = elements * sizeof(T);
    time_group(state, world, order, bytes, [=](Group& group) {
        return group.template seconds<T>(elements, bytes <= (1U << 20U) ? 50 : 10);
    });
}

template <class Stage>
void step(benchmark::State& state, int world, cuda::NcclOrder order, std::size_t micro_batches) {
    auto const sizes = bench::sizes_of(state);
    time_group(state, world, order, bench::elements_of(sizes) * sizeof(bfloat16),
               [&](Group& group) {
                   return group.template seconds_of_step<Stage>(sizes, micro_batches, 10);
               });
}

template <class Stage>
void add_step(int world, cuda::NcclOrder order, char const* who, std::size_t micro_batches = 0) {
    std::string const name = "step/cuda_nccl_W" + std::to_string(world) + '/' + who;
    auto* const added = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        step<Stage>(state, world, order, micro_batches);
    });
    added->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
    for (auto const& sizes : {bench::models()[0], bench::models()[1]}) {
        added->Arg(static_cast<std::int64_t>(bench::elements_of(sizes)));
    }
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
        add_step<Stage>(world, cuda::NcclOrder::library, "twin");
        add_step<Stage>(world, cuda::NcclOrder::rank, "rank");
        add_step<Stage::with<TreeReduction<>>>(world, cuda::NcclOrder::rank, "tree",
                                               static_cast<std::size_t>(world));
    }
    return true;
}();

} // namespace

} // namespace zero
