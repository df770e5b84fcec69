// Compares collectives between threads with a twin: the same number of threads that meet, move the
// same bytes and meet again (std::barrier). Compares a reduce-scatter of 1 KB with three empty
// rounds of a barrier. The element count is that of the whole buffer: a rank sends it to a
// reduce-scatter and receives it from an all-gather. The byte count is what all ranks together read
// and write.

#include "host/memory_twin.hpp"

#include <zero/comm/loopback.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace zero;

/// Runs `iterate(rank)` on one thread per rank as often as the benchmark requires. Short iterations
/// run several times between two meetings. The meetings are not timed.
template <class Iterate>
void measure(benchmark::State& state, std::size_t world, Iterate const& iterate) {
    std::int64_t const batch = std::max<std::int64_t>(1, (std::int64_t{1} << 18U) / state.range(0));
    std::barrier meeting(static_cast<std::ptrdiff_t>(world));
    bool is_going = true;
    auto const run = [&](std::size_t rank) {
        for (std::int64_t i = 0; i < batch; ++i) {
            iterate(rank);
        }
        meeting.arrive_and_wait();
    };
    std::vector<std::thread> peers;
    for (std::size_t rank = 1; rank < world; ++rank) {
        peers.emplace_back([&, rank] {
            while (true) {
                meeting.arrive_and_wait();
                if (!is_going) {
                    return;
                }
                run(rank);
            }
        });
    }
    while (state.KeepRunningBatch(batch)) {
        meeting.arrive_and_wait();
        auto const start = std::chrono::steady_clock::now();
        run(0);
        state.SetIterationTime(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    is_going = false;
    meeting.arrive_and_wait();
    for (auto& peer : peers) {
        peer.join();
    }
}

/// The whole buffer and a shard of each rank.
class Memory {
public:
    Memory(std::size_t world, std::size_t n) : _shard(n / world) {
        float* at = pool(world * (n + _shard + 2 * gap));
        for (std::size_t rank = 0; rank < world; ++rank) {
            whole.push_back(at);
            shard.push_back(at + n + gap);
            at += n + _shard + 2 * gap;
            cuts.push_back(rank * _shard);
        }
        cuts.push_back(n);
    }

    [[nodiscard]] std::size_t shard_elements() const { return _shard; }

    std::vector<float*> whole;
    std::vector<float*> shard;
    std::vector<std::size_t> cuts;

private:
    static constexpr std::size_t gap = 1024;

    /// Shared by all benchmarks, because the first touch takes longer than a measurement.
    static float* pool(std::size_t elements) {
        static std::unique_ptr<bench::Array<float>> memory;
        if (memory == nullptr || memory->size() < elements) {
            memory.reset();
            memory = std::make_unique<bench::Array<float>>(elements, 0.25F);
        }
        return memory->data();
    }

    std::size_t _shard;
};

void count_reduce_scatter(benchmark::State& state, std::size_t world) {
    bench::count_bytes(state, static_cast<double>((world + 1) * sizeof(float))
                                  * static_cast<double>(state.range(0)));
}

void count_all_gather(benchmark::State& state, std::size_t world) {
    bench::count_bytes(state, static_cast<double>(2 * (world - 1) * sizeof(float))
                                  * static_cast<double>(state.range(0)));
}

void reduce_scatter(benchmark::State& state, std::size_t world) {
    Memory const memory(world, static_cast<std::size_t>(state.range(0)));
    auto ranks = LoopbackCommunicator::make_group(static_cast<int>(world));
    auto const queue = HostBackend::default_compute_queue();
    measure(state, world, [&](std::size_t rank) {
        ranks[rank].reduce_scatter<float>(memory.whole[rank], memory.shard[rank], memory.cuts,
                                          queue);
    });
    count_reduce_scatter(state, world);
}

void reduce_scatter_twin(benchmark::State& state, std::size_t world) {
    Memory const memory(world, static_cast<std::size_t>(state.range(0)));
    std::vector<float const*> const from(memory.whole.begin(), memory.whole.end());
    std::barrier meeting(static_cast<std::ptrdiff_t>(world));
    measure(state, world, [&](std::size_t rank) {
        meeting.arrive_and_wait();
        bench::move_sum(memory.shard[rank], from.data(), world, memory.cuts[rank],
                        memory.shard_elements());
        meeting.arrive_and_wait();
    });
    count_reduce_scatter(state, world);
}

/// In place, as the engine gathers: each rank's shard is already in its place.
void all_gather(benchmark::State& state, std::size_t world) {
    Memory const memory(world, static_cast<std::size_t>(state.range(0)));
    auto ranks = LoopbackCommunicator::make_group(static_cast<int>(world));
    auto const queue = HostBackend::default_compute_queue();
    measure(state, world, [&](std::size_t rank) {
        ranks[rank].all_gather<float>(memory.whole[rank] + memory.cuts[rank], memory.whole[rank],
                                      memory.cuts, queue);
    });
    count_all_gather(state, world);
}

void all_gather_twin(benchmark::State& state, std::size_t world) {
    Memory const memory(world, static_cast<std::size_t>(state.range(0)));
    std::barrier meeting(static_cast<std::ptrdiff_t>(world));
    measure(state, world, [&](std::size_t rank) {
        meeting.arrive_and_wait();
        for (std::size_t peer = 0; peer < world; ++peer) {
            if (peer != rank) {
                std::memcpy(memory.whole[rank] + memory.cuts[peer],
                            memory.whole[peer] + memory.cuts[peer],
                            memory.shard_elements() * sizeof(float));
            }
        }
        meeting.arrive_and_wait();
    });
    count_all_gather(state, world);
}

/// Three empty rounds of meeting and parting.
void three_rounds(benchmark::State& state, std::size_t world) {
    std::barrier meeting(static_cast<std::ptrdiff_t>(world));
    measure(state, world, [&](std::size_t) {
        for (int round = 0; round < 3; ++round) {
            meeting.arrive_and_wait();
            meeting.arrive_and_wait();
        }
    });
}

void add(std::string const& name, std::size_t world,
         void (*function)(benchmark::State&, std::size_t), std::vector<std::int64_t> const& sizes) {
    auto* const benchmark = benchmark::RegisterBenchmark(name.c_str(), function, world);
    for (std::int64_t const size : sizes) {
        benchmark->Arg(size);
    }
    benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}

[[maybe_unused]] bool const is_registered = [] {
    std::vector<std::int64_t> const sizes{1 << 12, 1 << 16, 1 << 20, 1 << 23, bench::gpt2_elements};
    for (std::size_t const world :
         {std::size_t{8}, std::size_t{4},
          std::size_t{2}}) { // the largest first: it allocates the memory for all
        std::string const suffix = "/W" + std::to_string(world);
        add("reduce_scatter" + suffix + "/twin", world, reduce_scatter_twin, sizes);
        add("reduce_scatter" + suffix + "/zero", world, reduce_scatter, sizes);
        add("all_gather" + suffix + "/twin", world, all_gather_twin, sizes);
        add("all_gather" + suffix + "/zero", world, all_gather, sizes);
        add("reduce_scatter_of_1_KB" + suffix + "/twin", world, three_rounds, {256});
        add("reduce_scatter_of_1_KB" + suffix + "/zero", world, reduce_scatter, {256});
    }
    return true;
}();

} // namespace
