#include "norm_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <functional>
#include <limits>
#include <optional>
#include <vector>

// Reduced gradients are read and changed between the last micro-step and step.

namespace zero::test::full_gradient_test {

namespace {

constexpr int world = 2;

/// A parameter of two units, a frozen one, an empty one, and one that needs padding.
std::vector<ParameterSpec> specs() {
    return {{"a", 130, {0}, 0, true},
            {"tied", 1, {0, 1}, 1, true},
            {"frozen", 3, {1}, 1, false},
            {"empty", 0, {1}, 0, true},
            {"b", 65, {1}, 0, true}};
}

/// Gradients of a rank: integers, which every type of the tests holds.
Values gradients_of(int rank) {
    return make_values(specs(), [rank](std::size_t parameter, std::size_t i) {
        return static_cast<float>((i * 7 + parameter) % 13) - 6.0F + static_cast<float>(rank);
    });
}

/// The mean over two ranks; 'tied' gets its gradient from two units.
std::vector<float> mean(std::size_t parameter, float factor) {
    std::vector<float> values = gradients_of(0)[parameter];
    for (float& value : values) {
        value = (value + 0.5F) * (parameter == 1 ? 2.0F : 1.0F) * factor;
    }
    return values;
}

/// Memory of the caller for gradients, with gaps.
template <class G>
struct GradientMemory {
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
    bool is_callers = false; ///< whether gradients lie in memory of the caller
    int world = full_gradient_test::world;
};

/// What a step did.
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
        GradientMemory<T> memory;
        if (run.is_callers) {
            memory.point(parameters);
        }
        typename Stage::Options options;
        options.reduction.schedule = run.schedule;
        Stage engine(communicator, parameters, options);
        Stepped stepped;
        for (int step = 0; step < 2; ++step) {
            stepped.before = snapshot(engine);
            engine.begin_step();
            float const scale = engine.loss_scale();
            for ([[maybe_unused]] auto const micro_step : engine.micro_steps(step == 0 ? 1 : 2)) {
                auto values = gradients_of(communicator.rank());
                for (auto& parameter : values) {
                    for (float& value : parameter) {
                        value *= scale * (run.world == 3 ? 0.3F : 1.0F); // needs all bits
                    }
                }
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

constexpr auto nothing = [](auto&, int) {};

std::vector<Run> all_runs() {
    std::vector<Run> runs;
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        for (bool const is_callers : {false, true}) {
            runs.push_back({schedule, is_callers});
        }
    }
    return runs;
}

/// Doubles all gradients through the full setters.
constexpr auto double_full = [](auto& state, int rank) {
    for (std::size_t p : {0U, 1U, 3U, 4U}) {
        auto values = state.full_gradient(p, GradientForm::scaled);
        for (float& value : values) {
            value *= 2.0F;
        }
        state.set_full_gradient(p, rank == 0 ? values : std::vector<float>(), GradientForm::scaled);
    }
};

/// Doubles them in place.
constexpr auto double_local = [](auto& state, int) {
    state.update_local_gradients([](std::size_t, std::size_t, std::span<float> values) {
        for (float& value : values) {
            value *= 2.0F;
        }
    });
};

template <class Stage>
void check_doubled(Run const& run) {
    double const norm = step_with<Stage>(run, nothing)[0].report.gradient_norm;
    CHECK(norm > 0.0);
    for (Stepped const& rank : step_with<Stage>(run, double_full)) {
        CHECK(rank.report.gradient_norm == 2.0 * norm);
    }
    for (Stepped const& rank : step_with<Stage>(run, double_local)) {
        CHECK(rank.report.gradient_norm == 2.0 * norm);
    }
}

} // namespace

TEST_CASE("An unscaled gradient is the mean worked out by hand, and a scaled one that times the "
          "factor") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, StaticLossScaler>;
        auto const ranks = on_ranks<Values>(world, [](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<float>(specs()),
                         {.loss_scaler = {.scale = 256.0F}, .reduction = {.predivide = 2.0F}});
            engine.begin_step();
            for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
                auto values = gradients_of(communicator.rank());
                for (auto& parameter : values) {
                    for (float& value : parameter) {
                        value *= 256.0F;
                    }
                }
                add_values(engine, values);
            }
            TrainingState state(engine);
            Values seen;
            for (std::size_t p : {0U, 1U, 3U, 4U}) {
                seen.push_back(state.full_gradient(p));
                seen.push_back(state.full_gradient(p, GradientForm::scaled));
            }
            std::vector<float> joined(130, -100.0F);
            for (LocalValues const& slice : state.local_gradient(0)) {
                std::copy(slice.values.begin(), slice.values.end(),
                          joined.begin() + static_cast<std::ptrdiff_t>(slice.begin));
            }
            seen.push_back(joined);
            return seen;
        });
        for (Values const& seen : ranks) {
            std::size_t at = 0;
            for (std::size_t p : {0U, 1U, 3U, 4U}) {
                CHECK((seen[at++] == mean(p, 1.0F)));
                CHECK((seen[at++] == mean(p, 256.0F))); // the sum over predivide is the mean
            }
        }
        for (std::size_t i = 0; i < 130; ++i) {
            float const expected = mean(0, 1.0F)[i];
            CHECK((ranks[0][8][i] == expected || ranks[1][8][i] == expected));
            CHECK((ranks[0][8][i] == expected || (N > 0 && ranks[0][8][i] == -100.0F)));
        }
    });
}

TEST_CASE("Doubled gradients double the norm, for each schedule and owner of the memory") {
    in_every_stage([]<int N>() {
        for (Run const& run : all_runs()) {
            INFO("schedule " << static_cast<int>(run.schedule) << ", caller " << run.is_callers);
            check_doubled<ZeroStage<N>>(run);
            check_doubled<ZeroStage<N, Parameters<bfloat16>>>(run);
        }
    });
}

TEST_CASE("Reading gradients, or an update that changes none, changes no bit of the step") {
    in_every_stage([]<int N>() {
        for (int const ranks : {2, 3}) { // the mean over three ranks is no power of two
            for (auto const schedule :
                 {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
                using Stage = ZeroStage<N>;
                Run const run{schedule, false, ranks};
                auto const expected = step_with<Stage>(run, nothing);
                auto const read = step_with<Stage>(run, [](auto& state, int) {
                    for (std::size_t p : {0U, 1U, 3U, 4U}) {
                        (void)state.full_gradient(p);
                        (void)state.local_gradient(p, GradientForm::scaled);
                    }
                });
                auto const updated = step_with<Stage>(run, [](auto& state, int) {
                    state.update_local_gradients([](std::size_t, std::size_t, auto) {});
                });
                for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                    CHECK((read[rank].after == expected[rank].after));
                    CHECK((updated[rank].after == expected[rank].after));
                }
            }
        }
    });
}

TEST_CASE("One element set to NaN skips the step on every rank and changes no bit") {
    auto const set_full = [](auto& state, int rank) {
        auto values = state.full_gradient(4);
        values[60] = std::numeric_limits<float>::quiet_NaN();
        state.set_full_gradient(4, rank == 0 ? values : std::vector<float>());
    };
    auto const set_local = [](auto& state, int rank) {
        auto slices = state.local_gradient(0); // completes the reductions, on every rank
        if (!slices.empty() && slices[0].begin == 0 && rank == 0) {
            slices[0].values[0] = std::numeric_limits<float>::quiet_NaN();
            state.set_local_gradient(0, 0, slices[0].values);
        }
    };
    in_every_stage([&]<int N>() {
        auto const check = [](std::vector<Stepped> const& ranks) {
            for (Stepped const& rank : ranks) {
                CHECK(rank.report.is_skipped);
                CHECK((rank.after == rank.before));
            }
        };
        for (Run const& run : all_runs()) {
            using Stage = ZeroStage<N, Parameters<bfloat16>, DynamicLossScaler>;
            check(step_with<Stage>(run, set_full));
            if (N > 0) { // in stage 0 every rank must write the same
                check(step_with<Stage>(run, set_local));
            }
            CHECK_FALSE(step_with<Stage>(run, nothing)[0].report.is_skipped);
        }
    });
}

TEST_CASE("Gradients are available between the last micro-step and step, and no micro-step may "
          "follow") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(specs()));
        TrainingState state(engine);
        CHECK_THROWS_WITH(state.full_gradient(0), contains_text("full_gradient() outside a step"));
        engine.begin_step();
        CHECK_THROWS_WITH(state.local_gradient(0),
                          contains_text("local_gradient() without a micro-step"));
        engine.begin_micro_step();
        CHECK_THROWS_AS(state.set_full_gradient(1, std::vector<float>{1}), OutOfOrder);
        add_values(engine, gradients_of(0));
        engine.end_micro_step();
        CHECK_THROWS_WITH(state.full_gradient(2), contains_text("'frozen' is frozen"));
        CHECK_THROWS_WITH(state.full_gradient(5), contains_text("parameter 5 does not exist"));
        state.set_full_gradient(1, std::vector<float>{3});
        CHECK(state.full_gradient(1) == std::vector<float>{3});
        CHECK_THROWS_WITH(state.set_local_gradient(0, 1, std::vector<float>{1}),
                          contains_text("holds no slice of 1 elements at 1 of parameter 'a'"));
        CHECK_THROWS_AS(engine.begin_micro_step(), OutOfOrder);
        CHECK_FALSE(engine.step(0.1).report().is_skipped);
        CHECK_THROWS_AS(state.full_gradient(0), OutOfOrder);
    });
}

} // namespace zero::test::full_gradient_test
