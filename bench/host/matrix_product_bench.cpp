#include <zero/host/detail/run_loop.hpp>
#include <zero/ops/detail/newton_schulz.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Compares the products of Muon's iteration, n x n times n x 4n, with a naive triple loop. The
// number at the end of a name is n.
namespace {

using namespace zero;

struct Data {
    explicit Data(std::size_t size)
        : n(size), left(n * n, 0.5F), right(4 * n * n, 0.25F), out(4 * n * n) {}

    std::size_t n;
    std::vector<float> left;
    std::vector<float> right;
    std::vector<float> out;
};

/// Counts floating-point operations as items.
void count(benchmark::State& state, std::size_t n) {
    state.SetItemsProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations())
                                                      * 2 * n * n * 4 * n));
}

void product(benchmark::State& state, host::InstructionSet set) {
    Data data(static_cast<std::size_t>(state.range(0)));
    auto const before = host::instruction_set();
    if (!host::use_instruction_set(set)) {
        state.SkipWithError("this machine lacks the instruction set");
        return;
    }
    for (auto _ : state) {
        host::detail::run(detail::MatrixProduct{.out = data.out.data(),
                                                .left = data.left.data(),
                                                .right = data.right.data(),
                                                .rows = data.n,
                                                .columns = 4 * data.n,
                                                .depth = data.n});
        benchmark::ClobberMemory();
    }
    host::use_instruction_set(before);
    count(state, data.n);
}

void twin(benchmark::State& state) {
    Data data(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        for (std::size_t i = 0; i < data.n; ++i) {
            for (std::size_t j = 0; j < 4 * data.n; ++j) {
                float sum = 0.0F;
                for (std::size_t k = 0; k < data.n; ++k) {
                    sum += data.left[i * data.n + k] * data.right[k * 4 * data.n + j];
                }
                data.out[i * 4 * data.n + j] = sum;
            }
        }
        benchmark::ClobberMemory();
    }
    count(state, data.n);
}

BENCHMARK_CAPTURE(product, avx2, host::InstructionSet::avx2)
    ->Name("matrix_product/n_by_4n/avx2")
    ->Arg(64)
    ->Arg(256)
    ->Arg(768)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(product, baseline, host::InstructionSet::baseline)
    ->Name("matrix_product/n_by_4n/baseline")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(twin)
    ->Name("matrix_product/n_by_4n/twin")
    ->Arg(64)
    ->Arg(256)
    ->Arg(768)
    ->Unit(benchmark::kMillisecond);

} // namespace
