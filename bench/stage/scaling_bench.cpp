// Measures how the step of one rank grows with W and with the number of parameters: bf16
// parameters, fp32 gradients and states, one real rank and W - 1 simulated ones (one_of_many.hpp),
// compared with a twin that moves the same bytes in the same passes. The counters are bytes of
// memory, allocated and planned.

#include "host/memory_twin.hpp"
#include "stage/backward_pass.hpp"
#include "stage/one_of_many.hpp"
#include "stage/scaling_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace zero;

/// A rank reads W extents of each bucket and writes its own, updates its own, and reads and writes
/// the parameters of the others.
void count(benchmark::State& state, std::size_t world) {
    auto const all = static_cast<double>(state.range(0));
    double const own = all / static_cast<double>(world);
    bench::count_bytes(state, 4.0 * all + 4.0 * own + 30.0 * own + 4.0 * (all - own));
}

void stage_2(benchmark::State& state, std::size_t world) {
    using Engine = ZeroStage<2, bench::OneOfMany, Parameters<bfloat16>,
                             GradientReduction<float, float, float>>;
    bench::OneOfMany communicator(world);
    HostMemoryResource memory;
    std::vector<Parameter<bfloat16, float>> parameters;
    for (auto const& spec : bench::scaling_model(static_cast<std::size_t>(state.range(0)))) {
        parameters.push_back({.name = spec.name, .elements = spec.elements, .units = spec.units});
    }
    typename Engine::Options options;
    options.memory = &memory;
    options.non_finite = NonFinite::step;
    options.communication_queue =
        HostBackend::default_compute_queue(); // one thread does everything
    Engine engine(communicator, parameters, options);
    auto const step = [&](bool are_written) {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        bench::backward_and_step(
            engine, [](std::size_t) {}, are_written);
    };
    step(true);
    for (auto _ : state) {
        step(false);
    }
    count(state, world);
    state.counters["allocated_bytes"] = static_cast<double>(memory.allocated_bytes());
    state.counters["planned_bytes"] = static_cast<double>(engine.memory_plan().engine_bytes());
}

void twin(benchmark::State& state, std::size_t world) {
    std::size_t const elements = static_cast<std::size_t>(state.range(0));
    std::size_t const chunk = std::min(elements, bench::scaling_bucket_elements);
    std::size_t const chunk_shard = chunk / world;
    std::size_t const shard = elements / world;
    bench::Array<float> const gradients(2 * chunk, 0.5F); // leases that are reused
    bench::Array<float> const sum(shard), master(shard), first(shard), second(shard);
    bench::Array<std::uint16_t> const parameters(elements);
    std::vector<float const*> peers(world);
    for (auto _ : state) {
        for (std::size_t index = 0; index < elements / chunk; ++index) {
            for (std::size_t peer = 0; peer < world; ++peer) {
                peers[peer] = gradients.data() + index % 2 * chunk + peer * chunk_shard;
            }
            bench::move_sum(sum.data() + index * chunk_shard, peers.data(), world, 0, chunk_shard);
        }
        bench::move_update(sum.data(), master.data(), std::array{first.data(), second.data()},
                           parameters.data(), shard);
        for (std::size_t peer = 1; peer < world; ++peer) {
            std::memcpy(parameters.data() + peer * shard, parameters.data(),
                        shard * sizeof(std::uint16_t));
        }
        benchmark::ClobberMemory();
    }
    count(state, world);
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    for (std::size_t const world : bench::scaling_worlds) {
        std::string const name = "scaling/W" + std::to_string(world);
        for (std::int64_t const elements :
             {std::int64_t{1} << 20, std::int64_t{1} << 24, std::int64_t{1} << 28}) {
            benchmark::RegisterBenchmark((name + "/twin").c_str(), twin, world)
                ->Arg(elements)
                ->Unit(benchmark::kMillisecond)
                ->UseRealTime();
            benchmark::RegisterBenchmark((name + "/stage_2").c_str(), stage_2, world)
                ->Arg(elements)
                ->Unit(benchmark::kMillisecond)
                ->UseRealTime();
        }
    }
    return true;
}();

} // namespace
