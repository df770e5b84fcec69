#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

// Products and quotients of settings that leave the range of float are refused.

namespace zero::test::float_range_test {

TEST_CASE("A learning rate times a group's factor must be finite as a float") {
    auto const outcomes = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.groups = {{}, {.learning_rate_factor = 1e20}}});
        auto const before = full_parameters(engine);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            run_micro_step(engine, 0, 0, micro_step);
        }
        CHECK_THROWS_AS(engine.step(1e19), InvalidArgument);
        CHECK_THROWS_WITH(engine.step(1e19),
                          contains_text("the learning rate 1")
                              && contains_text("times the learning_rate_factor 1")
                              && contains_text("of group 1 is not finite as a float (rank 0)"));
        engine.set_learning_rate(0, 1e21);
        CHECK_THROWS_WITH(engine.step(1e19), contains_text("of group 0 is not finite"));
        engine.set_learning_rate(0, 1.0);
        engine.set_learning_rate(1, 1.0);
        CHECK(engine.step_count() == 0);
        CHECK_FALSE(engine.step(0.0).report().is_skipped); // the refused rate left no trace
        CHECK(engine.step_count() == 1);
        CHECK(full_parameters(engine) == before);
    });
    CHECK(outcomes.rethrown == Outcome{});
}

TEST_CASE("A pre-division over a loss scale must be a float above zero") {
    using Stage = ZeroStage<1, StaticLossScaler>;
    auto const construct = [](float scale, float predivide) {
        return run_and_observe(1,
                               [=](LoopbackCommunicator& communicator) {
                                   Stage engine(communicator, registration<float>(toy_specs()),
                                                {.loss_scaler = {.scale = scale},
                                                 .reduction = {.predivide = predivide}});
                               })
            .rethrown;
    };
    CHECK(construct(1024.0F, 4.0F) == Outcome{});
    CHECK(construct(0x1p-126F, 2.0F) == Outcome{});
    CHECK(construct(0x1p126F, 0x1p-20F) == Outcome{});
    Outcome const large = construct(0x1p-126F, 4.0F);
    CHECK(large.type == "InvalidArgument");
    CHECK_THAT(large.message, contains_text("for predivide 4") && contains_text("and loss scale ")
                                  && contains_text("outside the range of float"));
    auto const of_many = run_and_observe(16, [](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.loss_scaler = {.scale = 0x1p-126F}}); // float is not divided before the sum
    });
    CHECK(of_many.rethrown == Outcome{});
    Outcome const small = construct(0x1p126F, 0x1p-30F);
    CHECK(small.type == "InvalidArgument");
    CHECK_THAT(small.message, contains_text("outside the range of float"));
}

TEST_CASE("A loss scale that is set must fit the pre-division") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<0, DynamicLossScaler> engine(
            communicator, registration<float>(toy_specs()),
            {.loss_scaler = {.minimum = 0x1p-126F}, .reduction = {.predivide = 16.0F}});
        CHECK_THROWS_AS(engine.set_loss_scale(0x1p-125F), InvalidArgument);
        auto state = engine.loss_scaler_state();
        state.scale = 0x1p-125F;
        CHECK_THROWS_WITH(engine.set_loss_scaler_state(state),
                          contains_text("predivide / loss scale"));
        CHECK(engine.loss_scaler_state().scale == 65536.0F);
        engine.set_loss_scale(0x1p-100F);
        CHECK(engine.loss_scaler_state().scale == 0x1p-100F);
    });
}

} // namespace zero::test::float_range_test
