#pragma once

// A whole step on the shapes of GPT-2 124M (smaller sizes: the same tensors with fewer elements),
// two ranks, in the library's default types for one type of parameters, compared with a twin that
// moves the bytes that a step must move, in the same passes and with the least arithmetic. Names
// are step/<type>_<gradients>_<case>[_<placement>]/<who>/<elements>:
//
//   leases, callers        gradients are in the engine's leases, or in a tensor of the caller's for
//                          each parameter, which stage 0 copies; the twin does not copy
//   plain                  gradients are not checked for non-finite values, except in float16,
//                          whose loss scaler always checks
//   clipped                the norm of all gradients is computed, which also checks them
//   replicated, gathered   stage 0, in which each rank updates everything; stage 3, which gathers
//                          each unit for the forward and the backward pass, not all parameters at
//                          the end
//
// The twin makes these passes per rank and shard. It reads the gradients of both ranks and writes
// the sum as floats. With a norm, it reads the sum. It reads the sum, the master weights and the
// moments, and writes the weights, the moments and the parameters. It copies the parameters of the
// other rank. An earlier step writes the gradients, which stay where they are. All memory is
// touched beforehand.

#include "host/memory_twin.hpp"
#include "stage/backward_pass.hpp"

#include "support/shapes.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace bench {

using namespace zero;

inline constexpr std::size_t world = 2;

struct StepCase {
    int stage = 1;
    bool is_clipped = false;
    bool are_callers = false; ///< whether gradients are in tensors of the caller

    [[nodiscard]] bool is_replicated() const { return stage == 0; }
    [[nodiscard]] bool is_gathered() const { return stage == 3; }
};

/// Returns whether the gradients are inspected, for the norm or by the loss scaler of float16.
template <class P>
bool is_inspected(StepCase const& what) {
    return what.is_clipped || std::is_same_v<P, float16>;
}

/// Bytes that all ranks together read and write per element.
template <class P>
double bytes_per_element(StepCase const& what) {
    constexpr double size = sizeof(P);
    double const copies = what.is_replicated() ? world : 1.0; // of the optimizer's work
    double const reduce = size * world + sizeof(float);
    double const gather_sums =
        what.is_replicated() ? 2.0 * sizeof(float) * (world - 1) : 0.0; // the sums of the peers
    double const read = is_inspected<P>(what) ? 4.0 * copies : 0.0;
    double const update = (28.0 + (std::is_same_v<P, float> ? 0.0 : size)) * copies;
    double const gather = what.is_replicated() ? 0.0
                          : what.is_gathered() ? 2.0 * 2.0 * size * world
                                               : 2.0 * size * (world - 1);
    return reduce + gather_sums + read + update + gather;
}

/// Returns the tensors of GPT-2, scaled to about a number of elements.
inline std::vector<ParameterSpec> model_of(std::int64_t elements) {
    double const scale = static_cast<double>(elements) / static_cast<double>(test::gpt2_elements);
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

/// Makes an engine, takes its first step, and calls `run(step)`.
/// @tparam Policies of the engine, such as `Wire`
template <int N, class P, class... Policies, class C, class Run>
void with_steps(C& communicator, std::vector<ParameterSpec> const& model, StepCase const& what,
                Run const& run) {
    using Engine = ZeroStage<N, Parameters<P>, C, Policies...>;
    std::vector<std::unique_ptr<Array<P>>> gradients;
    std::vector<Parameter<P>> parameters;
    for (auto const& spec : model) {
        parameters.push_back({.name = spec.name, .elements = spec.elements, .units = spec.units});
        if (what.are_callers) {
            gradients.push_back(
                std::make_unique<Array<P>>(spec.elements, from_float<P>(gradient_value)));
            parameters.back().gradient = gradients.back()->data();
        }
    }
    typename Engine::Options options;
    if (!is_inspected<P>(what)) {
        options.non_finite = NonFinite::step;
    }
    if (what.is_clipped) {
        options.gradient_clipping = 1.0F;
    }
    Engine engine(communicator, parameters, options);
    auto const gather = [&](std::size_t unit) {
        if (what.is_gathered()) {
            (void)engine.acquire(unit);
        }
    };
    auto const step = [&](bool are_written) {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            gather(unit);
        }
        backward_and_step(engine, gather, are_written);
    };
    step(true); // also touches the remaining memory
    run([&] { step(false); });
}

template <int N, class P, class... Policies>
void full_step(benchmark::State& state, StepCase const& what) {
    auto const model = model_of(state.range(0));
    run_ranks(static_cast<int>(world), [&](LoopbackCommunicator& communicator) {
        with_steps<N, P, Policies...>(communicator, model, what, [&](auto const& step) {
            measure(state, communicator, step);
        });
    });
    count_bytes(state, bytes_per_element<P>(what) * static_cast<double>(test::elements_of(model)));
}

/// The arrays of one rank of the twin.
template <class P>
struct TwinRank {
    TwinRank(std::size_t elements, std::size_t held, std::size_t all_leases)
        : gradient(elements, from_float<P>(0.5F)), sum(held, 0.5F), master(held, 0.5F), first(held),
          second(held), parameter(elements), leases(all_leases) {}

    Array<P> gradient;
    Array<float> sum, master, first, second;
    Array<P> parameter; ///< gathered: the first half is the shard
    Array<P> leases;    ///< gathered: one per unit
};

/// Elements of each unit; a tied parameter counts in each of its units.
inline std::vector<std::size_t> unit_elements(std::vector<ParameterSpec> const& model) {
    std::vector<std::size_t> result(test::gpt2_units);
    for (auto const& spec : model) {
        for (std::size_t const unit : spec.units) {
            result[unit] += spec.elements;
        }
    }
    return result;
}

template <class P>
void twin(benchmark::State& state, StepCase const& what) {
    auto const model = model_of(state.range(0));
    auto const units = unit_elements(model);
    std::size_t const elements = test::elements_of(model);
    std::size_t const shard = elements / world / 64 * 64;
    std::size_t const held = what.is_replicated() ? elements / 64 * 64 : shard;
    std::vector<std::unique_ptr<TwinRank<P>>> ranks(world);
    run_ranks(static_cast<int>(world), [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::size_t all_leases = 0;
        for (std::size_t const unit : units) {
            all_leases += what.is_gathered() ? unit : 0;
        }
        ranks[rank] = std::make_unique<TwinRank<P>>(elements, held, all_leases);
        std::int64_t met = 0;
        auto const meet = [&] {
            communicator.all_reduce_integers(&met, 1, IntegerReduction::sum,
                                             HostBackend::default_compute_queue());
        };
        meet();
        TwinRank<P>& own = *ranks[rank];
        TwinRank<P> const& peer = *ranks[1 - rank];
        std::size_t const begin = rank * shard;
        std::size_t const other = (1 - rank) * shard;
        std::size_t const own_sum = what.is_replicated() ? begin : 0;
        // Units lie one after another in the shards, or the caches would hold what is read again.
        auto const gather_units = [&] {
            P* lease = own.leases.data();
            std::size_t at = 0;
            for (std::size_t const unit : units) {
                std::size_t const half = unit / world / 64 * 64;
                at = at + half <= shard ? at : 0; // a tied parameter counts in each of its units
                for (auto const& source : ranks) {
                    move_copy(lease, source->parameter.data() + at, half * sizeof(P));
                    lease += half;
                }
                at += half;
            }
        };
        measure(state, communicator, [&] {
            if (what.is_gathered()) {
                gather_units();
                gather_units();
            }
            std::array<P const*, world> const gradients{ranks[0]->gradient.data(),
                                                        ranks[1]->gradient.data()};
            move_sum(own.sum.data() + own_sum, gradients.data(), world, begin, shard);
            if (what.is_replicated()) {
                meet();
                move_copy(own.sum.data() + other, peer.sum.data() + other, shard * sizeof(float));
            }
            if (is_inspected<P>(what)) {
                move_read(own.sum.data(), held);
            }
            P* const parameters = own.parameter.data() + (held == shard ? begin : 0);
            move_update(own.sum.data(), own.master.data(),
                        std::array{own.first.data(), own.second.data()},
                        std::is_same_v<P, float> ? nullptr : parameters, held);
            meet();
            if (!what.is_gathered() && !what.is_replicated()) {
                move_copy(own.parameter.data() + other, peer.parameter.data() + other,
                          shard * sizeof(P));
            }
        });
        meet(); // before freeing memory that the other rank reads
    });
    count_bytes(state, bytes_per_element<P>(what) * static_cast<double>(test::elements_of(model)));
}

template <class Function>
void add(std::string const& name, Function* function, StepCase const& what) {
    std::vector<std::int64_t> sizes{static_cast<std::int64_t>(gpt2_elements)};
    if (!what.is_replicated()) { // there sums grow in place, and small models take many steps
        sizes.push_back(std::int64_t{1} << 20);
    }
    for (std::int64_t const size : sizes) {
        benchmark::RegisterBenchmark(name.c_str(), function, what)
            ->Arg(size)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
    }
}

/// Registers the steps of all stages of one case, and their twins.
template <class P>
void add_case(std::string const& name, StepCase what) {
    for (int const stage : {0, 1, 2, 3}) {
        what.stage = stage;
        std::string const placed = name
                                   + (what.is_replicated() ? "_replicated"
                                      : what.is_gathered() ? "_gathered"
                                                           : "");
        if (stage != 2) { // the twin of stage 1
            add(placed + "/twin", twin<P>, what);
        }
        with_stage(stage, [&]<int N>() {
            add(placed + "/stage_" + std::to_string(N), full_step<N, P>, what);
        });
    }
}

/// Registers the steps of stages 2 and 3 in codes, beside the twins of plain ones. Threads of one
/// process are a fast link, so they show what the codes cost.
template <class P, class W>
void add_coded(std::string const& type, std::string const& codes) {
    add("step/" + type + "_leases_plain/stage_2_" + codes, full_step<2, P, W>, {.stage = 2});
    add("step/" + type + "_leases_plain_gathered/stage_3_" + codes, full_step<3, P, W>,
        {.stage = 3});
}

/// Registers the steps with parameters of type `P`.
template <class P>
bool add_steps(std::string const& type) {
    keep_memory();
    add_case<P>("step/" + type + "_leases_plain", {});
    add_case<P>("step/" + type + "_leases_clipped", {.is_clipped = true});
    add_case<P>("step/" + type + "_callers_plain", {.are_callers = true});
    return true;
}

} // namespace bench
