#include <zero/host/tensor.hpp>
#include <zero/ops/detail/lamb_steps.hpp>
#include <zero/ops/detail/update_parts.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/muon.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

// Updates of one matrix of 768 x 3072: fp32 gradient, master weight and states, bf16 parameter. The
// twin is AdamW with the same number of elements.
namespace {

using namespace zero;

constexpr std::size_t rows = 768;
constexpr std::size_t columns = 3072;

struct Data {
    explicit Data(std::size_t scratch_floats)
        : gradient(rows * columns), master(rows * columns, 0.5F), parameter(rows * columns),
          first(rows * columns), second(rows * columns), scratch(scratch_floats) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] = static_cast<float>(i * 2654435761U % 1000U) * 1e-3F - 0.5F;
        }
    }

    std::vector<float> gradient;
    std::vector<float> master;
    std::vector<bfloat16> parameter;
    std::vector<float> first;
    std::vector<float> second;
    std::vector<float> scratch;
};

template <class Optimizer>
void update(benchmark::State& state) {
    Data data(Optimizer::scratch_floats(rows, columns));
    UpdateSlice<float, MasterPointers<float, bfloat16>, StatePointers<2, float>> slice;
    slice.master = data.master.data();
    slice.parameter = data.parameter.data();
    slice.states = {data.first.data(), data.second.data()};
    slice.gradient = data.gradient.data();
    slice.elements = rows * columns;
    slice.rows = rows;
    slice.scratch = data.scratch.data();
    std::uint64_t step = 0;
    for (auto _ : state) {
        Optimizer::update_tensor(host::Tensor(slice, UpdateDecision{.factor = 0.5F}),
                                 Optimizer::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(
        static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * rows * columns));
}

void twin(benchmark::State& state) {
    Data data(0);
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<AdamW>(data.gradient.data(), data.master.data(), data.parameter.data(),
                            {data.first.data(), data.second.data()}, rows * columns, 0.5F,
                            AdamW::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(
        static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * rows * columns));
}

BENCHMARK(update<Lamb>)
    ->Name("tensor_update/768x3072/lamb")
    ->Arg(rows* columns)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(update<Muon>)
    ->Name("tensor_update/768x3072/muon")
    ->Arg(rows* columns)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(twin)
    ->Name("tensor_update/768x3072/twin")
    ->Arg(rows* columns)
    ->Unit(benchmark::kMillisecond);

} // namespace
