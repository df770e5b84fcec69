#include "memory_twin.hpp"

#include "zero/host/kernels.hpp"
#include "zero/ops/adamw.hpp"

#include <benchmark/benchmark.h>

// The fused update: fp32 gradient, master weight and both moments, bf16 parameter. 16 bytes read and 14 written per element. The master weight
// in parts takes 4.125 bytes with the parameter and both are read: 16.125 and 12.125.
namespace {

using namespace zero;

constexpr std::size_t bytes_per_element = 30;

struct State {
    explicit State(std::size_t n) : gradient(n, 0.01F), master(n, 0.5F), first(n, 0.0F), second(n, 0.0F), parameter(n) {}
    bench::Array<float> gradient;
    bench::Array<float> master;
    bench::Array<float> first;
    bench::Array<float> second;
    bench::Array<bfloat16> parameter;
};

void count(benchmark::State& state, std::size_t n) {
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * n * bytes_per_element));
}

void adamw(benchmark::State& state, host::InstructionSet set) {
    auto const n = static_cast<std::size_t>(state.range(0));
    State data(n);
    auto const before = host::instruction_set();
    if (!host::use_instruction_set(set)) {
        state.SkipWithError("this machine lacks the instruction set");
        return;
    }
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<AdamW>(data.gradient.data(), data.master.data(), data.parameter.data(),
                            std::array{data.first.data(), data.second.data()}, n, 0.5F, AdamW::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    host::use_instruction_set(before);
    count(state, n);
}

void split_adamw(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    bench::Array<float> gradient(n, 0.01F);
    bench::Array<float> first(n, 0.0F);
    bench::Array<float> second(n, 0.0F);
    bench::Array<bfloat16> parameter(n, from_float<bfloat16>(0.5F));
    bench::Array<std::uint16_t> remainder(n);
    bench::Array<std::uint8_t> rounded_up(n / 8);
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<AdamW>(gradient.data(), SplitPointers{parameter.data(), remainder.data(), rounded_up.data()},
                            StatePointers<2, float>{{first.data(), second.data()}}, n, 0.5F, AdamW::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<double>(state.iterations()) * static_cast<double>(n) * 28.25));
}

void twin(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    State data(n);
    for (auto _ : state) {
        float* const gradient = data.gradient.data();
        float* const master = data.master.data();
        float* const first = data.first.data();
        float* const second = data.second.data();
        bfloat16* const parameter = data.parameter.data();
        for (std::size_t i = 0; i < n; i += 8) {
            for (std::size_t j = i; j < i + 8; j += 4) {
                auto const word = bench::load(gradient + j);
                auto const value = bench::load(master + j) ^ word;
                bench::store(master + j, value);
                bench::store(first + j, bench::load(first + j) ^ word);
                bench::store(second + j, bench::load(second + j) ^ word);
            }
            bench::store(parameter + i, bench::load(master + i) ^ bench::load(master + i + 4)); // 8 elements of 16 bits
        }
        benchmark::ClobberMemory();
    }
    count(state, n);
}

BENCHMARK(twin)->Name("update/twin")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(adamw, avx2, host::InstructionSet::avx2)
    ->Name("update/adamw/avx2")
    ->Arg(bench::gpt2_elements)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(split_adamw)->Name("update/adamw/split/best")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(adamw, baseline, host::InstructionSet::baseline)
    ->Name("update/adamw/baseline")
    ->Arg(bench::gpt2_elements)
    ->Unit(benchmark::kMillisecond);

} // namespace
