#pragma once

// A step whose reduced gradients are read or changed before they are applied.

#include "norm_model.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::gradient_model {

inline constexpr int world = 2;

/// A parameter of two units, a frozen one, an empty one, and one that needs padding.
inline std::vector<ParameterSpec> specs() {
    return {{"a", 130, {0}, 0, true},
            {"tied", 1, {0, 1}, 1, true},
            {"frozen", 3, {1}, 1, false},
            {"empty", 0, {1}, 0, true},
            {"b", 65, {1}, 0, true}};
}

/// Gradients of a rank: integers, which every type of the tests holds.
inline Values gradients_of(int rank) {
    return make_values(specs(), [rank](std::size_t parameter, std::size_t i) {
        return static_cast<float>((i * 7 + parameter) % 13) - 6.0F + static_cast<float>(rank);
    });
}

/// The mean over two ranks; 'tied' gets its gradient from two units.
inline std::vector<float> mean(std::size_t parameter, float factor) {
    std::vector<float> values = gradients_of(0)[parameter];
    for (float& value : values) {
        value = (value + 0.5F) * (parameter == 1 ? 2.0F : 1.0F) * factor;
    }
    return values;
}

/// Caller-owned memory for gradients, with gaps.
template <class G>
struct CallerGradients {
    std::vector<G> values = std::vector<G>(1000);

    template <class Registration>
    void point(std::vector<Registration>& parameters) {
        std::size_t begin = 1;
        for (auto& parameter : parameters) {
            parameter.gradient = parameter.trainable ? values.data() + begin : nullptr;
            begin += parameter.elements + 1;
        }
    }
};

struct Run {
    ReductionSchedule schedule = ReductionSchedule::boundary;
    bool is_callers = false; ///< whether gradients are in caller-owned memory
    int world = gradient_model::world;
    bool has_all_bits = false; ///< whether gradients are not integers
};

/// The results of a step.
struct Stepped {
    StepReport report{};
    std::vector<std::uint32_t> before;
    std::vector<std::uint32_t> after;
};

/// Takes two steps of one or two micro-steps and calls `change(state, rank)` before the second
/// `step`.
template <class Stage, class Change>
std::vector<Stepped> step_with(Run const& run, Change const& change) {
    using T = typename Stage::ParameterType;
    return on_ranks<Stepped>(run.world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T>(specs());
        CallerGradients<T> memory;
        if (run.is_callers) {
            memory.point(parameters);
        }
        typename Stage::Options options;
        options.reduction.schedule = run.schedule;
        if (run.has_all_bits) {
            options.reduction.predivide = 1.1F; // a division does not undo a multiplication by it
            options.gradient_clipping = 1.0F;   // applied in the same multiplication
        }
        Stage engine(communicator, parameters, options);
        Stepped stepped;
        for (int step = 0; step < 2; ++step) {
            stepped.before = snapshot(engine);
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(step == 0 ? 1 : 2)) {
                auto const values = make_values(specs(), [&](std::size_t parameter, std::size_t i) {
                    return scale * gradients_of(communicator.rank())[parameter][i]
                           * (run.has_all_bits ? noise(9, parameter, i) : 1.0F);
                });
                add_values(engine, values);
            }
            if (step == 1) {
                TrainingState state(engine);
                change(state, communicator.rank());
            }
            stepped.report = engine.step(0.1).report();
        }
        stepped.after = snapshot(engine);
        return stepped;
    });
}

inline constexpr auto nothing = [](auto&, int) {};

inline std::vector<Run> all_runs() {
    std::vector<Run> runs;
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        for (bool const is_callers : {false, true}) {
            runs.push_back({schedule, is_callers});
        }
    }
    return runs;
}

} // namespace zero::test::gradient_model
