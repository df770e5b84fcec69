#include "host/memory_twin.hpp"

#include <zero/core/convert.hpp>
#include <zero/host/kernels.hpp>

#include <benchmark/benchmark.h>

// Compares the inspection of gradients (exact sum of squares, non-finite elements) with a loop that
// only reads them.
namespace {

using namespace zero;

template <class T>
void norm(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    bench::Array<T> const values(n, from_float<T>(0.01F));
    for (auto _ : state) {
        ops::Inspection result;
        host::inspect(values.data(), n, 0, result);
        benchmark::DoNotOptimize(result);
    }
    bench::count_bytes(state, static_cast<double>(n * sizeof(T)));
}

template <class T>
void twin(benchmark::State& state) {
    std::size_t const n = bench::share(state);
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
    bench::count_bytes(state, static_cast<double>(n * sizeof(T)));
}

[[maybe_unused]] bool const keeps_memory = bench::keep_memory();

BENCHMARK_TEMPLATE(twin, float)->Name("norm/float32/twin")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(norm, float)->Name("norm/float32/zero")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(twin, bfloat16)->Name("norm/bfloat16/twin")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(norm, bfloat16)->Name("norm/bfloat16/zero")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(twin, float16)->Name("norm/float16/twin")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(norm, float16)->Name("norm/float16/zero")->Apply(bench::sizes);
BENCHMARK_TEMPLATE(twin, float)->Name("norm/float32/twin")->Apply(bench::all_cores);
BENCHMARK_TEMPLATE(norm, float)->Name("norm/float32/zero")->Apply(bench::all_cores);
BENCHMARK_TEMPLATE(twin, bfloat16)->Name("norm/bfloat16/twin")->Apply(bench::all_cores);
BENCHMARK_TEMPLATE(norm, bfloat16)->Name("norm/bfloat16/zero")->Apply(bench::all_cores);
BENCHMARK_TEMPLATE(twin, float16)->Name("norm/float16/twin")->Apply(bench::all_cores);
BENCHMARK_TEMPLATE(norm, float16)->Name("norm/float16/zero")->Apply(bench::all_cores);

} // namespace
