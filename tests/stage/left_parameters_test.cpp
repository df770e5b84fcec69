#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

// UnusedParameters::leave: a parameter of which no rank had a gradient is as if the step had not
// been. The reference trains each parameter alone, in an engine that knows no such option.

namespace zero::test::left_parameters_test {

namespace {

using namespace state_model;

/// A run of the toy model in which random parameters have gradients on random ranks.
struct Run {
    std::uint64_t seed;
    std::uint64_t steps = 7;
    std::size_t micro_steps = 1 + seed % 3;

    [[nodiscard]] bool draw(double probability, std::uint64_t a, std::uint64_t b,
                            std::uint64_t c = 0) const {
        return noise(seed, a, b, c) < static_cast<float>(2.0 * probability - 1.0);
    }
    /// A step that overflows, or that is cancelled.
    [[nodiscard]] bool overflows(std::uint64_t step) const { return draw(0.15, 101, step); }
    [[nodiscard]] bool is_cancelled(std::uint64_t step) const { return draw(0.1, 102, step); }

    /// One parameter has a gradient in every step, since a step without any is an error.
    [[nodiscard]] bool has(std::uint64_t step, std::uint64_t micro_step, std::uint64_t rank,
                           std::size_t parameter) const {
        if (!toy_specs()[parameter].trainable) {
            return false;
        }
        if (parameter == 1 && rank == 0) {
            return true;
        }
        return draw(0.5, 103 + parameter, step) // otherwise no rank has one
               && draw(0.4, 203 + parameter, step, micro_step * 16 + rank);
    }
    [[nodiscard]] bool has(std::uint64_t step, std::size_t world, std::size_t parameter) const {
        bool is_any = false;
        for (std::uint64_t rank = 0; rank < world; ++rank) {
            for (std::uint64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
                is_any = is_any || has(step, micro_step, rank, parameter);
            }
        }
        return is_any;
    }
    /// Updates of a parameter that was trained alone.
    [[nodiscard]] std::uint64_t updates(std::size_t world, std::size_t parameter) const {
        std::uint64_t count = 0;
        for (std::uint64_t step = 0; step < steps; ++step) {
            count += !overflows(step) && !is_cancelled(step) && has(step, world, parameter);
        }
        return count;
    }

    template <class G>
    void add(std::span<G> gradient, std::uint64_t step, std::uint64_t micro_step,
             std::uint64_t rank, std::size_t parameter, std::size_t unit) const {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            float const added =
                noise(seed * 1000 + rank * 100 + unit, parameter, i, step * 16 + micro_step);
            gradient[i] = from_float<G>(to_float(gradient[i]) + added);
        }
        if (overflows(step) && !gradient.empty()) {
            gradient[0] = from_float<G>(std::numeric_limits<float>::infinity());
        }
    }
};

template <class Stage>
typename Stage::Options options_of(Run const& run) {
    typename Stage::Options options;
    options.unused_parameters = UnusedParameters::leave;
    options.reduction.schedule = ReductionSchedule::boundary;
    decltype(options.optimizer) first;
    decltype(options.optimizer) second;
    if constexpr (requires { second.weight_decay; }) {
        second.weight_decay = 0.1;
    }
    options.groups = {{first, 1.0}, {second, 0.5}};
    options.report.group_norms = run.seed % 4 == 1;
    options.report.zero_gradients = run.seed % 4 == 2;
    options.update_tile_elements = run.seed % 2 == 0 ? 0 : 200;
    options.poison = run.seed % 3 == 0;
    if (run.seed % 5 == 3) {
        options.rebuild_buckets = Stage::in_ready_order;
    }
    return options;
}

/// Delivers the gradients of one step: by address, or handed over.
template <class Engine>
void deliver(Engine& engine, Run const& run, std::uint64_t step, std::uint64_t rank) {
    using G = typename Engine::GradientType;
    auto const& layout = engine.layout();
    for (std::uint64_t const micro_step : engine.micro_steps(run.micro_steps)) {
        for (std::size_t unit = layout.units(); unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            for (std::size_t const parameter : layout.unit_parameters(unit)) {
                if (!run.has(step, micro_step, rank, parameter)) {
                    continue;
                }
                if (run.draw(0.5, 301, step, parameter)) {
                    auto const gradients = engine.gradients(unit);
                    auto const gradient = gradients[parameter];
                    run.add(gradient, step, micro_step, rank, parameter, unit);
                } else {
                    std::vector<G> gradient(layout.parameter(parameter).elements);
                    run.add(std::span<G>(gradient), step, micro_step, rank, parameter, unit);
                    (void)engine.hand_over(unit, parameter, gradient);
                }
            }
            engine.gradients_ready(unit);
        }
    }
}

template <class Engine>
Bits bits_of_parameter(Engine& engine, std::size_t parameter) {
    TrainingState state(engine);
    Bits bits = bits_of(state.full_fp32_parameter(parameter));
    if (engine.layout().parameter(parameter).trainable) {
        for (auto const& name : state.state_names()) {
            Bits const values = bits_of(state.full_optimizer_state(parameter, name));
            bits.insert(bits.end(), values.begin(), values.end());
        }
        bits.push_back(static_cast<std::uint32_t>(state.updates(parameter)));
    }
    return bits;
}

/// All parameters in one engine.
template <class Stage>
std::vector<Bits> train_together(Run const& run, int world) {
    return on_ranks<std::vector<Bits>>(
               world,
               [&](LoopbackCommunicator& communicator) {
                   auto const rank = static_cast<std::uint64_t>(communicator.rank());
                   Stage engine(communicator,
                                registration<typename Stage::ParameterType>(toy_specs()),
                                options_of<Stage>(run));
                   for (std::uint64_t step = 0; step < run.steps; ++step) {
                       engine.begin_step();
                       deliver(engine, run, step, rank);
                       if (run.is_cancelled(step)) {
                           engine.cancel_step();
                       } else {
                           engine.step(0.01);
                       }
                   }
                   std::vector<Bits> bits;
                   for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
                       bits.push_back(bits_of_parameter(engine, parameter));
                   }
                   return bits;
               })
        .front();
}

/// One parameter in an engine of its own, which makes no step without a gradient of it.
template <class Stage>
Bits train_alone(Run const& run, int world, std::size_t parameter) {
    return on_ranks<Bits>(
               world,
               [&](LoopbackCommunicator& communicator) {
                   auto const rank = static_cast<std::uint64_t>(communicator.rank());
                   using T = typename Stage::ParameterType;
                   using G = typename Stage::GradientType;
                   auto registered = registration<T>(toy_specs())[parameter];
                   auto const units = registered.units;
                   auto options = options_of<Stage>(run);
                   options.unused_parameters = UnusedParameters::zero;
                   options.groups = {options.groups[registered.group]};
                   options.rebuild_buckets = nullptr;
                   registered.group = 0;
                   registered.units = {0};
                   Stage engine(communicator, {registered}, options);
                   for (std::uint64_t step = 0; step < run.steps; ++step) {
                       if (run.overflows(step) || run.is_cancelled(step)
                           || !run.has(step, static_cast<std::size_t>(world), parameter)) {
                           continue;
                       }
                       engine.begin_step();
                       for (std::uint64_t const micro_step : engine.micro_steps(run.micro_steps)) {
                           std::vector<G> sum(registered.elements);
                           bool const is_handed = !run.draw(0.5, 301, step, parameter);
                           if (run.has(step, micro_step, rank, parameter)) {
                               for (std::size_t unit = units.size(); unit-- > 0;) {
                                   std::vector<G> part(sum.size());
                                   std::span<G> const to =
                                       is_handed ? std::span<G>(part) : std::span<G>(sum);
                                   run.add(to, step, micro_step, rank, parameter, units[unit]);
                                   for (std::size_t i = 0; is_handed && i < sum.size(); ++i) {
                                       sum[i] = from_float<G>(to_float(sum[i]) + to_float(part[i]));
                                   }
                               }
                               (void)engine.hand_over(0, 0, sum);
                           }
                           engine.gradients_ready(0);
                       }
                       engine.step(0.01);
                   }
                   return bits_of_parameter(engine, 0);
               })
        .front();
}

template <class... Policies>
void compare(std::uint64_t first_seed, std::uint64_t seeds) {
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
        for (int const world : {1, 2, 3, 4}) {
            Run const run{seed};
            std::vector<Bits> alone;
            for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
                alone.push_back(train_alone<ZeroStage<0, Policies...>>(run, world, parameter));
            }
            in_every_stage([&]<int N>() {
                auto const together = train_together<ZeroStage<N, Policies...>>(run, world);
                for (std::size_t parameter = 0; parameter < alone.size(); ++parameter) {
                    if (toy_specs()[parameter].elements == 0) {
                        continue;
                    }
                    INFO("seed " << seed << ", " << world << " ranks, parameter " << parameter);
                    CHECK((together[parameter] == alone[parameter]));
                    if (toy_specs()[parameter].trainable) {
                        CHECK(together[parameter].back()
                              == run.updates(static_cast<std::size_t>(world), parameter));
                    }
                }
            });
        }
    }
}

} // namespace

TEST_CASE("Random parameters without gradients train like parameters that are alone") {
    compare<AdamW>(1, 5);
    compare<Adam, Parameters<bfloat16>, MasterWeights<float>>(6, 1);
    compare<Lamb, RoundRobinPartitioner>(7, 1);
    compare<Sgd, BlockScaledState<float16, RoundToNearest>>(8, 1);
}

} // namespace zero::test::left_parameters_test
