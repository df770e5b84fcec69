#include "memory_twin.hpp"

#include "zero/host/kernels.hpp"

#include <benchmark/benchmark.h>

// The inspection of gradients (exact sum of squares, non-finite elements) beside a loop that only reads them.
namespace {

using namespace zero;

template <class T>
void count(benchmark::State& state, std::size_t n) {
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * n * sizeof(T)));
}

template <class T>
void inspect(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    bench::Array<T> const values(n, from_float<T>(0.01F));
    for (auto _ : state) {
        ops::Inspection result;
        host::inspect(values.data(), n, 0, result);
        benchmark::DoNotOptimize(result);
    }
    count<T>(state, n);
}

template <class T>
void twin(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    bench::Array<T> const values(n, from_float<T>(0.01F));
    constexpr std::size_t word = 16 / sizeof(T);
    for (auto _ : state) {
        bench::Word4 first = {};
        bench::Word4 second = {};
        for (T const* at = values.data(); at != values.data() + n; at += 4 * word) {
            first += bench::load(at) + bench::load(at + word);
            second += bench::load(at + 2 * word) + bench::load(at + 3 * word);
        }
        benchmark::DoNotOptimize(first);
        benchmark::DoNotOptimize(second);
    }
    count<T>(state, n);
}

BENCHMARK_TEMPLATE(twin, float)->Name("inspect/twin/float32")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(inspect, float)->Name("inspect/float32")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(twin, bfloat16)->Name("inspect/twin/bfloat16")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(inspect, bfloat16)->Name("inspect/bfloat16")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);

} // namespace
