#include "gradient_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <limits>
#include <vector>

// The step inspects and applies reduced gradients as the caller changed them.

namespace zero::test::changed_gradient_test {

namespace {

using namespace gradient_model;

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

TEST_CASE("Doubled gradients double the norm, for each schedule and owner of the memory") {
    in_every_stage([]<int N>() {
        for (Run const& run : all_runs()) {
            INFO("schedule " << static_cast<int>(run.schedule) << ", caller " << run.is_callers);
            check_doubled<ZeroStage<N>>(run);
            check_doubled<ZeroStage<N, Parameters<bfloat16>>>(run);
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

TEST_CASE("An unscaled gradient that was set is read back, and the step applies it") {
    in_every_stage([]<int N>() {
        struct Seen {
            std::vector<float> found;
            double norm = 0.0;
        };
        auto const ranks = on_ranks<Seen>(world, [](LoopbackCommunicator& communicator) {
            ZeroStage<N, StaticLossScaler> engine(communicator, registration<float>(specs()),
                                                  {.loss_scaler = {.scale = 256.0F}});
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                add_values(engine, gradients_of(communicator.rank()));
            }
            TrainingState<ZeroStage<N, StaticLossScaler>> state(engine); // the type, spelled out
            for (std::size_t p : {0U, 1U, 3U, 4U}) {
                std::vector<float> values(specs()[p].elements);
                if (p == 0) {
                    values[5] = 3.0F;
                    values[129] = -4.0F;
                }
                state.set_full_gradient(p, values);
            }
            Seen seen{state.full_gradient(0)};
            seen.norm = engine.step(0.1).report().gradient_norm;
            return seen;
        });
        for (Seen const& seen : ranks) {
            CHECK(seen.found[5] == 3.0F);
            CHECK(seen.found[129] == -4.0F);
            CHECK(seen.found[6] == 0.0F);
            CHECK(seen.norm == 5.0);
        }
    });
}

TEST_CASE("Gradients in a block of the caller, which are reduced in place, are changed there") {
    auto const check = []<int N>() {
        auto const norms = on_ranks<std::vector<double>>(world, [](LoopbackCommunicator& ranks) {
            std::vector<float> values(1007);
            std::vector<float> gradients(1007);
            std::vector<Parameter<float>> const parameters{{.name = "a",
                                                            .data = values.data(),
                                                            .elements = 1000,
                                                            .gradient = gradients.data()},
                                                           {.name = "b",
                                                            .data = values.data() + 1000,
                                                            .elements = 7,
                                                            .gradient = gradients.data() + 1000}};
            ZeroStage<N> engine(ranks, parameters,
                                {.storage = Storage::adopted,
                                 .adopted_block = values,
                                 .bucketer = {.bucket_bytes = 2048},
                                 .reduction = {.schedule = ReductionSchedule::boundary}});
            std::vector<double> seen;
            for (bool const doubles : {false, true}) {
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                auto const handle = engine.gradients(0);
                for (std::size_t i = 0; i < 1007; ++i) {
                    gradients[i] = static_cast<float>(i % 7);
                }
                engine.gradients_ready(0);
                engine.end_micro_step();
                TrainingState state(engine);
                if (doubles) {
                    double_local(state, 0);
                }
                seen.push_back(static_cast<double>(state.full_gradient(0)[999]));
                seen.push_back(static_cast<double>(state.full_gradient(1)[6]));
                seen.push_back(engine.step(0.1).report().gradient_norm);
            }
            return seen;
        });
        for (auto const& seen : norms) {
            CHECK(seen[0] == 5.0); // 999 % 7
            CHECK(seen[1] == 5.0); // 1006 % 7
            CHECK(seen[3] == 10.0);
            CHECK(seen[4] == 10.0);
            CHECK(seen[5] == 2.0 * seen[2]);
        }
    };
    check.operator()<0>();
    check.operator()<1>();
    check.operator()<2>();
}

} // namespace zero::test::changed_gradient_test
