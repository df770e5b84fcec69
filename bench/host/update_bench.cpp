#include "host/memory_twin.hpp"

#include <zero/backend/update_decision.hpp>
#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/sgd.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <string>

// The fused update: fp32 gradient, master weight and states, bf16 parameter. With two states it
// reads 16 bytes per element and writes 14. A master weight in parts takes 4.125 bytes including
// the parameter, and both are read: 16.125 bytes read and 12.125 written.
namespace {

using namespace zero;

constexpr std::size_t bytes_per_element(std::size_t states) {
    return 4 + 8 + 2 + 8 * states;
}

template <std::size_t states>
struct Data {
    explicit Data(std::size_t n)
        : gradient(n, 0.01F), master(n, 0.5F), parameter(n), moments(states * n, 0.0F) {
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
    bench::count_bytes(state, static_cast<double>(n * bytes_per_element(states)));
}

template <class Optimizer>
void update(benchmark::State& state, host::InstructionSet set) {
    std::size_t const n = bench::share(state);
    Data<Optimizer::states> data(n);
    auto const before = host::instruction_set();
    if (!host::use_instruction_set(set)) {
        state.SkipWithError("this machine lacks the instruction set");
        return;
    }
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<Optimizer>(data.gradient.data(), data.master.data(), data.parameter.data(),
                                data.state, n, 0.5F, Optimizer::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    host::use_instruction_set(before);
    count(state, n, Optimizer::states);
}

void split_adamw(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    bench::Array<float> gradient(n, 0.01F);
    bench::Array<float> first(n, 0.0F);
    bench::Array<float> second(n, 0.0F);
    bench::Array<bfloat16> parameter(n, from_float<bfloat16>(0.5F));
    bench::Array<std::uint16_t> remainder(n);
    bench::Array<std::uint8_t> rounded_up(n / 8);
    std::uint64_t step = 0;
    for (auto _ : state) {
        host::update<AdamW>(gradient.data(),
                            SplitPointers{parameter.data(), remainder.data(), rounded_up.data()},
                            StatePointers<2, float>{{first.data(), second.data()}}, n, 0.5F,
                            AdamW::hyper({}, 1e-3, ++step));
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(n) * 28.25);
}

/// Runs AdamW with states in 16 or 8 bits.
/// @param bytes read and written per element
template <class States>
void update_with(benchmark::State& state, States const& states, std::size_t n, double bytes) {
    Data<0> data(n);
    std::uint64_t step = 0;
    for (auto _ : state) {
        UpdateDecision const decision{.random_key = ops::random_key(0, ++step)};
        host::update<AdamW>(
            data.gradient.data(),
            MasterPointers<float, bfloat16>{data.master.data(), data.parameter.data()},
            decided(states, decision), n, 0.5F, AdamW::hyper({}, 1e-3, step));
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(n) * bytes);
}

template <class S, bool stochastic>
void scaled_adamw(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    bench::Array<S> moments(2 * n);
    bench::Array<float> scales(2 * (n / 64 + 1), 1.0F);
    ScaledStatePointers<2, S> states;
    states.states = {moments.data(), moments.data() + n};
    states.scales = {scales.data(), scales.data() + n / 64 + 1};
    double const bytes = 14.0 + 4.0 * (sizeof(S) + 0.0625); // read and written
    if constexpr (stochastic) {
        update_with(state, StochasticStates<ScaledStatePointers<2, S>>{states}, n, bytes);
    } else {
        update_with(state, states, n, bytes);
    }
}

template <bool stochastic>
void bfloat16_adamw(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    bench::Array<bfloat16> moments(2 * n);
    StatePointers<2, bfloat16> const states{{moments.data(), moments.data() + n}};
    if constexpr (stochastic) {
        update_with(state, StochasticStates<StatePointers<2, bfloat16>>{states}, n, 22.0);
    } else {
        update_with(state, states, n, 22.0);
    }
}

void stochastic_adamw(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    Data<2> data(n);
    std::uint64_t step = 0;
    for (auto _ : state) {
        ++step;
        host::update<AdamW>(
            data.gradient.data(),
            StochasticPointers<bfloat16>{data.parameter.data(), 0, ops::random_key(1, step)},
            StatePointers<2, float>{data.state}, n, 0.5F, AdamW::hyper({}, 1e-3, step));
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(n) * 24);
}

template <std::size_t states>
void twin(benchmark::State& state) {
    std::size_t const n = bench::share(state);
    Data<states> data(n);
    for (auto _ : state) {
        bench::move_update(data.gradient.data(), data.master.data(), data.state,
                           data.parameter.data(), n);
        benchmark::ClobberMemory();
    }
    count(state, n, states);
}

using Function = void (*)(benchmark::State&, host::InstructionSet);

/// Larger than the caches and small enough for many repetitions.
constexpr std::int64_t middle = 1 << 23;

auto* add(std::string const& name, Function function,
          host::InstructionSet set = host::instruction_set()) {
    return benchmark::RegisterBenchmark(name.c_str(), function, set)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
}

template <class Optimizer>
void add_both(std::string const& name) {
    add(name, update<Optimizer>)->Arg(middle);
    add(name + "_baseline", update<Optimizer>, host::InstructionSet::baseline)->Arg(middle);
}

BENCHMARK(twin<2>)->Name("update/two_states/twin")->Apply(bench::sizes);
BENCHMARK(twin<2>)->Name("update/two_states/twin")->Apply(bench::all_cores);
BENCHMARK(twin<1>)
    ->Name("update/one_state/twin")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(split_adamw)
    ->Name("update/two_states/adamw_split_master")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK((scaled_adamw<float16, true>))
    ->Name("update/two_states/adamw_scaled_states")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK((scaled_adamw<power8, true>))
    ->Name("update/two_states/adamw_power8_states")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK((scaled_adamw<float16, false>))
    ->Name("update/two_states/adamw_scaled_states_to_nearest")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(bfloat16_adamw<true>)
    ->Name("update/two_states/adamw_bfloat16_states")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(bfloat16_adamw<false>)
    ->Name("update/two_states/adamw_bfloat16_states_to_nearest")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(stochastic_adamw)
    ->Name("update/two_states/adamw_stochastic")
    ->Arg(middle)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    bench::sizes(add("update/two_states/adamw", update<AdamW>));
    bench::all_cores(add("update/two_states/adamw", update<AdamW>));
    add("update/two_states/adamw_baseline", update<AdamW>, host::InstructionSet::baseline)
        ->Arg(middle);
    add_both<Adam>("update/two_states/adam");
    add_both<Lion>("update/one_state/lion");
    add_both<Adagrad>("update/one_state/adagrad");
    add_both<Sgd>("update/one_state/sgd");
    return true;
}();

} // namespace
