// The whole step on the shapes of GPT-2 124M, two ranks, bf16 parameters, fp32 gradients and states, beside a twin that moves the same
// bytes in the same passes with the least arithmetic: per rank and shard one pass that reads both ranks' gradients and writes the sum, one that reads
// it with three states and writes these and the parameter, one that copies the other rank's parameters.
//
// The gradients are written beforehand and stay in leases of their own for every bucket, so that the engine reads them from memory, as
// the twin does, and not from a few leases that a cache could hold.

#include "../../tests/support/shapes.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using namespace zero;

constexpr int world = 2;
constexpr std::size_t elements = test::gpt2_elements;
constexpr double bytes_per_element = 12.0 / world + 30.0 / world + 4.0 * (world - 1) / world; // of one rank

/// Runs `iterate` on both ranks as often as the benchmark asks; rank 0 keeps the time.
template <class Iterate>
void measure(benchmark::State& state, LoopbackCommunicator& communicator, Iterate&& iterate) {
    auto const queue = HostBackend::default_compute_queue();
    std::int64_t is_going = 1;
    auto const agree = [&] { communicator.all_reduce_integers(&is_going, 1, IntegerReduction::min, queue); };
    if (communicator.rank() == 0) {
        for ([[maybe_unused]] auto _ : state) {
            agree();
            auto const start = std::chrono::steady_clock::now();
            iterate();
            agree();
            state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        is_going = 0;
        agree();
        state.SetBytesProcessed(
            static_cast<std::int64_t>(static_cast<double>(state.iterations()) * world * bytes_per_element * static_cast<double>(elements)));
        return;
    }
    for (agree(); is_going != 0; agree()) {
        iterate();
        agree();
    }
}

template <int N>
void full_step(benchmark::State& state, bool is_clipped) {
    using Engine = ZeroStage<N, Parameters<bfloat16>, GradientReduction<float, float, float>>;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<bfloat16, float>> parameters;
        for (auto const& spec : test::gpt2_124m()) {
            parameters.push_back({.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        typename Engine::Options options;
        options.non_finite = NonFinite::step;
        if (is_clipped) {
            options.gradient_clipping = 1.0F;
        }
        options.extra_leases = 64; // more than there are buckets
        Engine engine(communicator, parameters, options);
        auto const step = [&](bool writes) {
            engine.begin_step();
            engine.begin_micro_step(true);
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const gradients = engine.gradients(unit, {}, false);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    if (writes) {
                        std::ranges::fill(gradients[parameter], 0.5F);
                    }
                }
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
            (void)engine.step(1e-4).report();
        };
        for (std::size_t touched = 0; touched <= 64; touched += engine.layout().trainable_buckets()) {
            step(true);
        }
        measure(state, communicator, [&] { step(false); });
    });
}

void step_of(benchmark::State& state, int stage, bool is_clipped) {
    with_stage(stage, [&]<int N>() { full_step<N>(state, is_clipped); });
}

/// The arrays of one rank of the twin.
struct TwinRank {
    std::vector<float> gradient, sum, master, first, second;
    std::vector<std::uint16_t> parameter;

    TwinRank()
        : gradient(elements, 0.5F), sum(elements / world, 0.5F), master(elements / world, 0.5F), first(elements / world),
          second(elements / world), parameter(elements) {}
};

void reduce(float* __restrict out, float const* __restrict a, float const* __restrict b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        out[i] = a[i] + b[i];
    }
}

void update(float const* __restrict gradient, float* __restrict master, float* __restrict first, float* __restrict second,
            std::uint16_t* __restrict parameter, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        first[i] += gradient[i];
        second[i] += gradient[i];
        master[i] += gradient[i];
        parameter[i] = static_cast<std::uint16_t>(static_cast<std::uint32_t>(static_cast<std::int32_t>(master[i])));
    }
}

void twin(benchmark::State& state) {
    static_assert(elements % world == 0);
    constexpr std::size_t shard = elements / world;
    std::vector<TwinRank> ranks(world);
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const queue = HostBackend::default_compute_queue();
        TwinRank& own = ranks[rank];
        std::size_t const begin = rank * shard;
        std::int64_t met = 0;
        measure(state, communicator, [&] {
            reduce(own.sum.data(), ranks[0].gradient.data() + begin, ranks[1].gradient.data() + begin, shard);
            update(own.sum.data(), own.master.data(), own.first.data(), own.second.data(), own.parameter.data() + begin, shard);
            communicator.all_reduce_integers(&met, 1, IntegerReduction::sum, queue);
            std::size_t const other = (1 - rank) * shard;
            std::memcpy(own.parameter.data() + other, ranks[1 - rank].parameter.data() + other, shard * sizeof(std::uint16_t));
        });
    });
}

constexpr auto unit = benchmark::kMillisecond;
BENCHMARK(twin)->UseManualTime()->Unit(unit);
BENCHMARK_CAPTURE(step_of, stage_1, 1, false)->UseManualTime()->Unit(unit);
BENCHMARK_CAPTURE(step_of, stage_1_clipped, 1, true)->UseManualTime()->Unit(unit);
BENCHMARK_CAPTURE(step_of, stage_2, 2, false)->UseManualTime()->Unit(unit);
BENCHMARK_CAPTURE(step_of, stage_2_clipped, 2, true)->UseManualTime()->Unit(unit);
BENCHMARK_CAPTURE(step_of, stage_3, 3, false)->UseManualTime()->Unit(unit);

} // namespace
