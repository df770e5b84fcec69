// Measures a whole step on the shapes of GPT-2 124M (smaller sizes: the same tensors with fewer
// elements), two ranks, bf16 parameters, fp32 gradients and states, beside a twin that moves the
// same bytes in the same passes with the least arithmetic. Passes per rank and shard:
//
//   step/plain             reads the gradients of both ranks and writes the sum;
//                          reads it with three states, and writes these and the parameter;
//                          copies the parameters of the other rank
//   step/clipped           the same, and reads the sum once more for its norm
//   step/gathered          stage 3: no copy at the end, but gathers each unit into a lease twice,
//                          for the forward and the backward pass
//   step/gathered_clipped  the same, and the norm
//
// The gradients are written beforehand and stay there. The leases of the larger models are larger
// than a cache, so the engine reads gradients from memory, like the twin. All memory is touched
// beforehand.

#include "host/memory_twin.hpp"
#include "stage/backward_pass.hpp"
#include "stage/filled_leases.hpp"

#include "support/shapes.hpp"

#include <zero/comm/detail/run_group.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/stage/detail/accepted_stage.hpp>
#include <zero/stage/detail/diagnose_stage.hpp>
#include <zero/stage/detail/rejected_stage.hpp>
#include <zero/stage/detail/replace_policy.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace zero;

constexpr std::size_t world = 2;

struct Case {
    bool is_clipped = false;
    bool is_gathered = false;

    /// Bytes that all ranks together read and write per element.
    [[nodiscard]] double bytes_per_element() const {
        double const reduce = 4.0 * (world + 1);
        double const update = 30.0;
        double const read = is_clipped ? 4.0 : 0.0;
        double const gather =
            2.0 * 2.0
            * (is_gathered
                   ? 2.0 * world
                   : static_cast<double>(world - 1)); // gathered: all; otherwise: the peers' part
        return reduce + read + update + gather;
    }
};

/// The tensors of GPT-2, scaled to about that many elements.
std::vector<ParameterSpec> model_of(benchmark::State const& state) {
    double const scale =
        static_cast<double>(state.range(0)) / static_cast<double>(test::gpt2_elements);
    auto model = test::gpt2_124m();
    for (auto& spec : model) {
        spec.elements = std::max<std::size_t>(
            64, static_cast<std::size_t>(scale * static_cast<double>(spec.elements)) / 64 * 64);
    }
    return model;
}

/// Runs `iterate` on both ranks as often as the benchmark requires; rank 0 measures the time.
template <class Iterate>
void measure(benchmark::State& state, LoopbackCommunicator& communicator, Iterate&& iterate) {
    auto const queue = HostBackend::default_compute_queue();
    std::int64_t is_going = 1;
    auto const agree = [&] {
        communicator.all_reduce_integers(&is_going, 1, IntegerReduction::min, queue);
    };
    if (communicator.rank() == 0) {
        for ([[maybe_unused]] auto _ : state) {
            agree();
            auto const start = std::chrono::steady_clock::now();
            iterate();
            agree();
            state.SetIterationTime(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        is_going = 0;
        agree();
        return;
    }
    while (true) {
        agree();
        if (is_going == 0) {
            return;
        }
        iterate();
        agree();
    }
}

void count(benchmark::State& state, Case const& what, std::vector<ParameterSpec> const& model) {
    bench::count_bytes(state,
                       what.bytes_per_element() * static_cast<double>(test::elements_of(model)));
}

template <int N>
void full_step(benchmark::State& state, Case const& what) {
    using Engine = ZeroStage<N, Parameters<bfloat16>, GradientReduction<float, float, float>>;
    auto const model = model_of(state);
    bench::FilledLeases memory;
    run_ranks(static_cast<int>(world), [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<bfloat16, float>> parameters;
        for (auto const& spec : model) {
            parameters.push_back(
                {.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        typename Engine::Options options;
        options.non_finite = NonFinite::step;
        if (what.is_clipped) {
            options.gradient_clipping = 1.0F;
        }
        options.memory = &memory;
        Engine engine(communicator, parameters, options);
        auto const gather = [&](std::size_t unit) {
            if (what.is_gathered) {
                (void)engine.acquire(unit);
            }
        };
        auto const step = [&] {
            engine.begin_step();
            engine.begin_micro_step(true);
            for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                gather(unit);
            }
            bench::backward_and_step(engine, gather);
        };
        step(); // touches the remaining memory
        measure(state, communicator, step);
    });
    count(state, what, model);
}

void step_of(benchmark::State& state, int stage, Case const& what) {
    with_stage(stage, [&]<int N>() { full_step<N>(state, what); });
}

/// The arrays of one rank of the twin.
struct TwinRank {
    explicit TwinRank(std::size_t elements, std::size_t all_leases)
        : gradient(elements, 0.5F), sum(elements / world, 0.5F), master(elements / world, 0.5F),
          first(elements / world), second(elements / world), parameter(elements),
          leases(all_leases) {}

    bench::Array<float> gradient, sum, master, first, second;
    bench::Array<std::uint16_t> parameter; ///< plain: all; gathered: the first half is the shard
    bench::Array<std::uint16_t> leases;    ///< gathered: one per unit, as in the engine
};

void reduce(float* out, float const* a, float const* b, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 8) {
        bench::store(out + i, bench::load(a + i) ^ bench::load(b + i));
        bench::store(out + i + 4, bench::load(a + i + 4) ^ bench::load(b + i + 4));
    }
}

void read(float const* values, std::size_t n) {
    bench::Word4 first = {};
    bench::Word4 second = {};
    for (std::size_t i = 0; i < n; i += 8) {
        first += bench::load(values + i);
        second += bench::load(values + i + 4);
    }
    benchmark::DoNotOptimize(first);
    benchmark::DoNotOptimize(second);
}

void update(float const* gradient, float* master, float* first, float* second,
            std::uint16_t* parameter, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 8) {
        for (std::size_t j = i; j < i + 8; j += 4) {
            auto const word = bench::load(gradient + j);
            bench::store(first + j, bench::load(first + j) ^ word);
            bench::store(second + j, bench::load(second + j) ^ word);
            bench::store(master + j, bench::load(master + j) ^ word);
        }
        bench::store(parameter + i, bench::load(master + i) ^ bench::load(master + i + 4));
    }
}

/// Elements of each unit; a tied parameter counts in each of its units.
std::vector<std::size_t> unit_elements(std::vector<ParameterSpec> const& model) {
    std::vector<std::size_t> result(test::gpt2_units);
    for (auto const& spec : model) {
        for (std::size_t const unit : spec.units) {
            result[unit] += spec.elements;
        }
    }
    return result;
}

void twin(benchmark::State& state, Case const& what) {
    auto const model = model_of(state);
    auto const units = unit_elements(model);
    std::size_t const elements = test::elements_of(model);
    std::size_t const shard = elements / world;
    std::vector<std::unique_ptr<TwinRank>> ranks(world);
    run_ranks(static_cast<int>(world), [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const queue = HostBackend::default_compute_queue();
        ranks[rank] = std::make_unique<TwinRank>(
            elements,
            what.is_gathered ? std::accumulate(units.begin(), units.end(), std::size_t{0}) : 0);
        std::int64_t met = 0;
        auto const meet = [&] {
            communicator.all_reduce_integers(&met, 1, IntegerReduction::sum, queue);
        };
        meet();
        TwinRank& own = *ranks[rank];
        std::size_t const begin = rank * shard;
        std::size_t const other = (1 - rank) * shard;
        auto const gather = [&](std::size_t unit) {
            std::size_t const half = units[unit] / world;
            std::uint16_t* const lease =
                own.leases.data()
                + std::accumulate(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(unit),
                                  std::size_t{0});
            // The offset in the shard of the peer does not matter to the memory.
            for (std::size_t peer = 0; peer < world; ++peer) {
                std::memcpy(lease + peer * half,
                            ranks[peer]->parameter.data() + (shard - half) / units.size() * unit,
                            half * sizeof(std::uint16_t));
            }
        };
        measure(state, communicator, [&] {
            for (std::size_t pass = 0; what.is_gathered && pass < 2; ++pass) {
                for (std::size_t unit = 0; unit < units.size(); ++unit) {
                    gather(pass == 0 ? unit : units.size() - 1 - unit);
                }
            }
            reduce(own.sum.data(), ranks[0]->gradient.data() + begin,
                   ranks[1]->gradient.data() + begin, shard);
            if (what.is_clipped) {
                read(own.sum.data(), shard);
            }
            update(own.sum.data(), own.master.data(), own.first.data(), own.second.data(),
                   own.parameter.data() + (what.is_gathered ? 0 : begin), shard);
            meet();
            if (!what.is_gathered) {
                std::memcpy(own.parameter.data() + other, ranks[1 - rank]->parameter.data() + other,
                            shard * sizeof(std::uint16_t));
            }
        });
        meet(); // before freeing memory that the other rank reads
    });
    count(state, what, model);
}

template <class Function, class... Arguments>
void add(std::string const& name, Function* function, Arguments const&... arguments) {
    for (std::int64_t const size : {std::int64_t{1} << 20, std::int64_t{1} << 23,
                                    static_cast<std::int64_t>(bench::gpt2_elements)}) {
        benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
            ->Arg(size)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
    }
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    for (bool const is_clipped : {false, true}) {
        std::string const replicated = is_clipped ? "step/clipped/" : "step/plain/";
        Case const plain{.is_clipped = is_clipped, .is_gathered = false};
        add(replicated + "twin", twin, plain);
        add(replicated + "stage_1", step_of, 1, plain);
        add(replicated + "stage_2", step_of, 2, plain);
        std::string const sharded = is_clipped ? "step/gathered_clipped/" : "step/gathered/";
        Case const gathered{.is_clipped = is_clipped, .is_gathered = true};
        add(sharded + "twin", twin, gathered);
        add(sharded + "stage_3", step_of, 3, gathered);
    }
    return true;
}();

} // namespace
