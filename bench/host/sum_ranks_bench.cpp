#include "host/memory_twin.hpp"

#include <zero/host/kernels.hpp>

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

// Compares the sum over W ranks in rank order, W reads and one write per element, with a loop that
// moves the same bytes. One thread; comm/loopback_bench.cpp measures one thread per rank.
namespace {

using namespace zero;

struct Peers {
    Peers(std::size_t world, std::size_t n) : out(n, 0.0F) {
        for (std::size_t rank = 0; rank < world; ++rank) {
            owners.push_back(std::make_unique<bench::Array<float>>(n, 0.25F));
            pointers.push_back(owners.back()->data());
        }
    }
    std::vector<std::unique_ptr<bench::Array<float>>> owners;
    std::vector<float const*> pointers;
    bench::Array<float> out;
};

void count(benchmark::State& state, std::size_t world) {
    bench::count_bytes(state, static_cast<double>((world + 1) * sizeof(float))
                                  * static_cast<double>(state.range(0)));
}

void sum_ranks(benchmark::State& state, std::size_t world) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Peers const peers(world, n);
    for (auto _ : state) {
        host::sum_ranks(peers.out.data(), peers.pointers.data(), static_cast<int>(world), n);
        benchmark::ClobberMemory();
    }
    count(state, world);
}

void twin(benchmark::State& state, std::size_t world) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Peers const peers(world, n);
    for (auto _ : state) {
        bench::move_sum(peers.out.data(), peers.pointers.data(), world, 0, n);
        benchmark::ClobberMemory();
    }
    count(state, world);
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    for (std::size_t const world : {std::size_t{2}, std::size_t{4}}) {
        std::string const name = "sum_ranks/W" + std::to_string(world);
        bench::sizes(benchmark::RegisterBenchmark((name + "/twin").c_str(), twin, world));
        bench::sizes(benchmark::RegisterBenchmark((name + "/zero").c_str(), sum_ranks, world));
    }
    return true;
}();

} // namespace
