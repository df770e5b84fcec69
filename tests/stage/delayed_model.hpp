#pragma once

// The rule of a delayed update, stated with an engine that does not delay: gradients are taken at
// the parameters before the last update.

#include "support/caller_memory.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/stage/step_report.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace zero::test {

/// How a run is trained, the same for both engines.
struct DelayedTraining {
    std::uint64_t steps = 7;
    std::size_t micro_steps = 1;
    std::uint64_t warm_up = 0;
    std::uint64_t seed = 1;      ///< of the pauses, infinities and cancelled steps
    bool has_infinities = false; ///< gradients of some steps are infinite
    bool settles = true;         ///< some steps begin with all updates
    bool rebuilds = false;       ///< buckets are rebuilt after the first step, which is not delayed
    std::vector<ParameterSpec> specs = toy_specs();
};

/// The observations of a rank in every step, and its states in the end.
struct DelayedRun {
    std::vector<std::vector<std::vector<float>>> seen{}; ///< parameters, by step
    std::vector<double> norms{};
    std::vector<float> scales{};
    std::vector<bool> skipped{};
    std::vector<bool> pending{}; ///< after each step
    bool is_settled = true;      ///< after each call of `settle`
    Trained final{};
};

/// Runs one micro-step whose gradients depend on the parameters. In some steps no rank asks for the
/// gradients of some parameters. @param infinite its first gradient
template <class Engine>
void run_micro_step_at(Engine& engine, std::vector<std::vector<float>> const& parameters,
                       std::uint64_t rank, std::uint64_t number, float scale, bool infinite) {
    using G = typename Engine::GradientType;
    auto const& layout = engine.layout();
    for (std::size_t unit = layout.units(); unit-- > 0;) {
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : layout.unit_parameters(unit)) {
            if (parameter != 0 && (number / 16 + parameter) % 5 == 4) {
                continue;
            }
            auto const gradient = gradients[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float const own = 0.5F * parameters[parameter][i]
                                  + noise(2 + rank * 100 + unit, parameter, i, number);
                float const value =
                    infinite && i == 0 ? std::numeric_limits<float>::infinity() : scale * own;
                gradient[i] = from_float<G>(to_float(gradient[i]) + value);
            }
        }
        engine.gradients_ready(unit);
    }
}

/// Returns the parameters that a pass of this step uses.
template <class Engine>
std::vector<std::vector<float>> acquired_parameters(Engine& engine) {
    auto const& layout = engine.layout();
    std::vector<std::vector<float>> values(layout.parameters().size());
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        auto const weights = engine.acquire(unit);
        for (std::size_t const parameter : layout.unit_parameters(unit)) {
            values[parameter].clear();
            for (auto const value : weights[parameter]) {
                values[parameter].push_back(to_float(value));
            }
        }
    }
    return values;
}

/// Trains, on every rank of a communicator.
/// @tparam is_reference whether the engine does not delay, and the run does
template <class Stage, bool is_reference>
std::vector<DelayedRun> delayed_runs(int world, typename Stage::Options const& options,
                                     DelayedTraining const& training) {
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;
    using Communicator = typename Stage::Communicator;
    return on_ranks<DelayedRun, Communicator>(world, [&](Communicator& communicator) {
        auto parameters = registration<T, G>(training.specs);
        auto own_options = options;
        auto const memory = provide_memory(parameters, own_options);
        Stage engine(communicator, parameters, own_options);
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        DelayedRun run;
        std::mt19937_64 random(training.seed);
        bool is_pending = false;
        std::uint64_t applied = 0;
        std::vector<std::vector<float>> before; // the last update
        for (std::uint64_t step = 0; step < training.steps; ++step) {
            if (training.settles && random() % 4 == 0) {
                if constexpr (!is_reference) {
                    engine.settle();
                    run.is_settled = run.is_settled && !engine.is_update_pending();
                }
                is_pending = false;
            }
            std::vector<std::vector<float>> current;
            if constexpr (is_reference) {
                current = full_parameters(engine);
            }
            bool const is_infinite = training.has_infinities && random() % 3 == 0;
            bool const is_cancelled = random() % 8 == 0;
            for (int turn = is_cancelled ? 0 : 1; turn < 2; ++turn) {
                engine.begin_step();
                float const scale = engine.loss_scale();
                for (auto const micro_step : engine.micro_steps(training.micro_steps)) {
                    auto const seen = is_reference ? (is_pending ? before : current)
                                                   : acquired_parameters(engine);
                    if (turn == 1 && micro_step == 0) {
                        run.seen.push_back(seen);
                    }
                    run_micro_step_at(engine, seen, rank, step * 16 + micro_step, scale,
                                      is_infinite && rank == 0 && micro_step == 0);
                }
                if (turn == 0) {
                    engine.cancel_step();
                }
            }
            StepReport const report = engine.step(0.01).report();
            applied += report.is_skipped ? 0 : 1;
            run.norms.push_back(report.gradient_norm);
            run.scales.push_back(report.next_loss_scale);
            run.skipped.push_back(report.is_skipped);
            is_pending = applied > training.warm_up || (training.warm_up == 0 && applied == 0);
            is_pending = is_pending && !(training.rebuilds && step == 0); // nothing is counted then
            run.pending.push_back(is_reference ? is_pending : engine.is_update_pending());
            before = current;
        }
        run.final.resize(training.specs);
        run.final.parameters = full_parameters(engine);
        engine.for_each_owned_slice([&](auto const& slice) { run.final.add(slice); });
        return run;
    });
}

/// Compares the bits of a delayed run with those of the rule.
inline void compare_delayed(std::vector<DelayedRun> const& found,
                            std::vector<DelayedRun> const& expected) {
    std::vector<Trained> ends[2];
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        INFO("rank " << rank);
        for (std::size_t step = 0; step < expected[rank].seen.size(); ++step) {
            INFO("step " << step);
            CHECK(found[rank].seen[step] == expected[rank].seen[step]);
            CHECK(found[rank].norms[step] == expected[rank].norms[step]);
            CHECK(found[rank].scales[step] == expected[rank].scales[step]);
            CHECK(found[rank].skipped[step] == expected[rank].skipped[step]);
            CHECK(found[rank].pending[step] == expected[rank].pending[step]);
        }
        CHECK(found[rank].is_settled);
        ends[0].push_back(found[rank].final);
        ends[1].push_back(expected[rank].final);
    }
    CHECK((Trained::joined(ends[0]) == Trained::joined(ends[1])));
}

} // namespace zero::test
