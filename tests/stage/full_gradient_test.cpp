#include "gradient_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <vector>

// Reduced gradients are read between the last micro-step and step.

namespace zero::test::full_gradient_test {

using namespace gradient_model;

TEST_CASE("An unscaled gradient is the mean worked out by hand, and a scaled one that times the "
          "factor") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, StaticLossScaler>;
        auto const ranks = on_ranks<Values>(world, [](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<float>(specs()),
                         {.loss_scaler = {.scale = 256.0F}, .reduction = {.predivide = 2.0F}});
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
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

TEST_CASE("With a weighted mean the unscaled gradient is the sum, because the weights come with "
          "step") {
    for (auto const& seen : on_ranks<std::vector<float>>(world, [](LoopbackCommunicator& ranks) {
             ZeroStage<2> engine(ranks, registration<float>(specs()),
                                 {.reduction = {.kind = ReductionKind::weighted_mean}});
             engine.begin_step();
             for (auto const micro_step : engine.micro_steps(1)) {
                 add_values(engine, gradients_of(ranks.rank()));
             }
             auto const values = TrainingState(engine).full_gradient(0);
             (void)engine.step(0.1, 3).report();
             return values;
         })) {
        CHECK((seen == mean(0, 2.0F)));
    }
}

TEST_CASE("Reading gradients, or an update that changes none, changes no bit of the step") {
    in_every_stage([]<int N>() {
        for (int const ranks : {2, 3}) { // a third is not a power of two
            for (auto const schedule :
                 {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
                using Stage = ZeroStage<N>;
                Run const run{schedule, false, ranks, true};
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
                    CHECK(updated[rank].report.gradient_norm
                          == expected[rank].report.gradient_norm);
                    CHECK(expected[rank].report.gradient_norm > 1.0); // and clipped
                }
            }
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
