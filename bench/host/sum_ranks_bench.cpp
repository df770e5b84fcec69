#include "memory_twin.hpp"

#include "zero/host/kernels.hpp"

#include <benchmark/benchmark.h>

#include <vector>

// The sum over W ranks in rank order: W reads and one write per element, beside a loop that moves the same bytes.
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

void count(benchmark::State& state) {
    state.SetBytesProcessed(state.iterations() * state.range(1) * (state.range(0) + 1) * static_cast<std::int64_t>(sizeof(float)));
}

void sum_ranks(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(1));
    Peers const peers(static_cast<std::size_t>(state.range(0)), n);
    for (auto _ : state) {
        host::sum_ranks(peers.out.data(), peers.pointers.data(), static_cast<int>(state.range(0)), n);
        benchmark::ClobberMemory();
    }
    count(state);
}

void twin(benchmark::State& state) {
    auto const world = static_cast<std::size_t>(state.range(0));
    auto const n = static_cast<std::size_t>(state.range(1));
    Peers const peers(world, n);
    float* const out = peers.out.data();
    float const* const* const from = peers.pointers.data();
    for (auto _ : state) {
        for (std::size_t i = 0; i < n; i += 8) {
            auto first = bench::load(from[0] + i);
            auto second = bench::load(from[0] + i + 4);
            for (std::size_t rank = 1; rank < world; ++rank) {
                first ^= bench::load(from[rank] + i);
                second ^= bench::load(from[rank] + i + 4);
            }
            bench::store(out + i, first);
            bench::store(out + i + 4, second);
        }
        benchmark::ClobberMemory();
    }
    count(state);
}

BENCHMARK(twin)
    ->Name("sum_ranks/twin")
    ->ArgNames({"world", "elements"})
    ->ArgsProduct({{2, 4}, {1 << 18, bench::gpt2_elements}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(sum_ranks)
    ->Name("sum_ranks")
    ->ArgNames({"world", "elements"})
    ->ArgsProduct({{2, 4}, {1 << 18, bench::gpt2_elements}})
    ->Unit(benchmark::kMillisecond);

} // namespace
