#include "memory_twin.hpp"

#include "zero/host/kernels.hpp"
#include "zero/ops/adagrad.hpp"
#include "zero/ops/adam.hpp"
#include "zero/ops/adamw.hpp"
#include "zero/ops/lion.hpp"
#include "zero/ops/sgd.hpp"

#include <benchmark/benchmark.h>

#include <array>
#include <string>

// The fused update: fp32 gradient, master weight and states, bf16 parameter. With two states 16 bytes are read and 14 written per element.
// The master weight in parts takes 4.125 bytes with the parameter and both are read: 16.125 and 12.125.
namespace {

using namespace zero;

constexpr std::size_t bytes_per_element(std::size_t states) {
    return 4 + 8 + 2 + 8 * states;
}

template <std::size_t states>
struct Data {
    explicit Data(std::size_t n) : gradient(n, 0.01F), master(n, 0.5F), parameter(n), moments(states * n, 0.0F) {
        for (std::size_t s = 0; s < states; ++s) {
            state[s] = moments.data() + s * n;
        }
    }
    bench::Array<float> gradient;
    bench::Array<float> master;
    bench::Array<bfloat16> parameter;
    bench::Array<float> moments;
    std::array<float*, states> state{};
};

void count(benchmark::State& state, std::size_t n, std::size_t states) {
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * n * bytes_per_element(states)));
}

template <class Optimizer>
void update(benchmark::State& state, host::InstructionSet set) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Data<Optimizer::states> data(n);
    auto const before = host::instruction_set();
    if (!host::use_instruction_set(set)) {
        state.SkipWithError("this machine lacks the instruction set");
        return;
    }
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<Optimizer>(data.gradient.data(), data.master.data(), data.parameter.data(), data.state, n, 0.5F,
                                Optimizer::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    host::use_instruction_set(before);
    count(state, n, Optimizer::states);
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

void scaled_adamw(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Data<0> data(n);
    bench::Array<float16> moments(2 * n);
    bench::Array<float> scales(2 * (n / 64 + 1), 1.0F);
    ScaledStatePointers<2> states;
    states.states = {moments.data(), moments.data() + n};
    states.scales = {scales.data(), scales.data() + n / 64 + 1};
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<AdamW>(data.gradient.data(), MasterPointers<float, bfloat16>{data.master.data(), data.parameter.data()}, states, n, 0.5F,
                            AdamW::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<double>(state.iterations()) * static_cast<double>(n) * 22.25));
}

void stochastic_adamw(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Data<2> data(n);
    std::uint64_t step = 0;
    for (auto _ : state) {
        ++step;
        host::update<AdamW>(data.gradient.data(), StochasticPointers<bfloat16>{data.parameter.data(), 0, ops::random_key(1, step)},
                            StatePointers<2, float>{data.state}, n, 0.5F, AdamW::hyper({}, 1e-3, step));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * n * 24));
}

template <std::size_t states>
void twin(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Data<states> data(n);
    for (auto _ : state) {
        float* const gradient = data.gradient.data();
        float* const master = data.master.data();
        auto const moments = data.state;
        bfloat16* const parameter = data.parameter.data();
        for (std::size_t i = 0; i < n; i += 8) {
            for (std::size_t j = i; j < i + 8; j += 4) {
                auto const word = bench::load(gradient + j);
                bench::store(master + j, bench::load(master + j) ^ word);
                for (float* const moment : moments) {
                    bench::store(moment + j, bench::load(moment + j) ^ word);
                }
            }
            bench::store(parameter + i, bench::load(master + i) ^ bench::load(master + i + 4)); // 8 elements of 16 bits
        }
        benchmark::ClobberMemory();
    }
    count(state, n, states);
}

template <class Optimizer>
void add(std::string const& name) {
    for (auto const set : {host::InstructionSet::avx2, host::InstructionSet::baseline}) {
        benchmark::RegisterBenchmark(("update/" + name + "/" + host::name_of(set)).c_str(), update<Optimizer>, set)
            ->Arg(bench::gpt2_elements)
            ->Unit(benchmark::kMillisecond);
    }
}

BENCHMARK(twin<2>)->Name("update/twin of two states")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK(split_adamw)->Name("update/adamw/split/best")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK(scaled_adamw)->Name("update/adamw/scaled_states/best")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK(stochastic_adamw)->Name("update/adamw/stochastic/best")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);
BENCHMARK(twin<1>)->Name("update/twin of one state")->Arg(bench::gpt2_elements)->Unit(benchmark::kMillisecond);

[[maybe_unused]] bool const is_registered = [] {
    add<AdamW>("adamw");
    add<Adam>("adam");
    add<Lion>("lion");
    add<Adagrad>("adagrad");
    add<Sgd>("sgd");
    return true;
}();

} // namespace
