#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

#include <functional>
#include <string>
#include <vector>

// Ranks that disagree get an error that names both sides, on every rank.

namespace zero::test::agreement_test {

namespace {

constexpr int world = 3;

/// Constructs an engine on each rank, after `change` has altered the arguments of rank 2.
template <class Stage>
Outcomes construct(
    std::function<void(std::vector<ParameterSpec>&, typename Stage::Options&)> const& change) {
    return run_and_observe(world, [&](LoopbackCommunicator& communicator) {
        auto specs = toy_specs();
        typename Stage::Options options;
        if (communicator.rank() == 2) {
            change(specs, options);
        }
        Stage engine(communicator, registration<float>(specs), options);
    });
}

void check_all(Outcomes const& outcomes, std::string const& type,
               std::vector<std::string> const& texts) {
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == type);
        for (std::string const& text : texts) {
            CHECK_THAT(outcome.message, contains_text(text));
        }
        CHECK(outcome.message == outcomes.ranks[0].message);
    }
    CHECK(outcomes.rethrown == outcomes.ranks[0]);
}

using Stage = ZeroStage<2>;

} // namespace

TEST_CASE("Ranks that register different models get a LayoutMismatch that names the first "
          "difference and both sides") {
    check_all(construct<Stage>([](auto& specs, auto&) { specs[3].elements = 130; }),
              "LayoutMismatch",
              {"parameter number 3 is 'second.weight' (129 elements of float32, units 2, group 0, "
               "trainable) on rank 0 and 'second.weight' (130 elements of float32, units 2, group "
               "0, trainable) on rank 2"});
    check_all(construct<Stage>([](auto& specs, auto&) { specs[1].name = "renamed"; }),
              "LayoutMismatch",
              {"'first.weight' (500 elements", "on rank 0 and 'renamed' (500 elements"});
    check_all(construct<Stage>([](auto& specs, auto&) { std::swap(specs[5], specs[3]); }),
              "LayoutMismatch",
              {"parameter number 3 is 'second.weight'", "and 'third.weight' (64 elements"});
    check_all(construct<Stage>([](auto& specs, auto&) { specs[0].units = {0}; }), "LayoutMismatch",
              {"'embedding' (300 elements of float32, units 0,4,",
               "and 'embedding' (300 elements of float32, units 0, group"});
    check_all(construct<Stage>([](auto& specs, auto&) { specs[7].group = 0; }), "LayoutMismatch",
              {"'head.scale' (1 elements of float32, units 4, group 1", "units 4, group 0"});
    check_all(construct<Stage>([](auto& specs, auto&) { specs[4].trainable = true; }),
              "LayoutMismatch", {"group 0, frozen) on rank 0", "group 0, trainable) on rank 2"});
    check_all(
        construct<Stage>([](auto& specs, auto&) { specs.pop_back(); }), "LayoutMismatch",
        {"parameter number 7 is 'head.scale'", "and nothing (it has 7 parameters) on rank 2"});
    check_all(
        construct<Stage>([](auto& specs, auto&) {
            specs.push_back({"extra", 5, {4}, 0, true});
        }),
        "LayoutMismatch",
        {"parameter number 8 is nothing (it has 8 parameters) on rank 0 and 'extra' (5 elements"});
}

TEST_CASE(
    "Ranks that register a parameter as different types get a LayoutMismatch that names both") {
    check_all(run_and_observe(world,
                              [](LoopbackCommunicator& communicator) {
                                  using Mixed = ZeroStage<2, Parameters<bfloat16, float>>;
                                  std::vector<Mixed::Registration> parameters{
                                      Parameter<float>{.name = "scale", .elements = 3}};
                                  if (communicator.rank() == 2) {
                                      parameters.emplace_back(
                                          Parameter<bfloat16>{.name = "weight", .elements = 100});
                                  } else {
                                      parameters.emplace_back(
                                          Parameter<float>{.name = "weight", .elements = 100});
                                  }
                                  Mixed engine(communicator, parameters);
                              }),
              "LayoutMismatch",
              {"number 1 is 'weight' (100 elements of float32, units 0, group 0, trainable) on "
               "rank 0 and 'weight' (100 elements of bfloat16, units 0,"});
}

TEST_CASE("Ranks with the same model but different options get a LayoutMismatch that says so") {
    std::vector<std::string> const texts{"rank 0 and rank 2",
                                         "have different options or policies: "};
    check_all(construct<Stage>([](auto&, auto& options) { options.bucketer.bucket_bytes = 1024; }),
              "LayoutMismatch", texts);
    check_all(construct<Stage>([](auto&, auto& options) {
                  options.reduction.schedule = ReductionSchedule::boundary;
              }),
              "LayoutMismatch", texts);
    check_all(
        construct<Stage>([](auto&, auto& options) { options.reduction.kind = ReductionKind::sum; }),
        "LayoutMismatch", texts);
    check_all(construct<Stage>([](auto&, auto& options) {
                  options.unused_parameters = UnusedParameters::error;
              }),
              "LayoutMismatch", texts);
    check_all(construct<Stage>([](auto&, auto& options) { options.gradient_clipping = 1.0F; }),
              "LayoutMismatch", texts);
    check_all(construct<Stage>([](auto&, auto& options) { options.non_finite = NonFinite::step; }),
              "LayoutMismatch", texts);
    check_all(construct<Stage>([](auto&, auto& options) { options.reduction.predivide = 2.0F; }),
              "LayoutMismatch", texts);
    check_all(
        construct<Stage>([](auto&, auto& options) { options.reduction.one_micro_step = true; }),
        "LayoutMismatch", texts);
    check_all(
        construct<ZeroStage<3>>([](auto&, auto& options) { options.gather.prefetch_elements = 0; }),
        "LayoutMismatch", texts);
    check_all(construct<ZeroStage<3>>(
                  [](auto&, auto& options) { options.gather.keep_after_forward = 1; }),
              "LayoutMismatch", texts);
    check_all(
        construct<ZeroStage<3>>([](auto&, auto& options) { options.gather.keep_until_update = 1; }),
        "LayoutMismatch", texts);
    check_all(construct<ZeroStage<3>>(
                  [](auto&, auto& options) { options.gather.own_communicator = true; }),
              "LayoutMismatch", texts);
    check_all(construct<ZeroStage<3>>([](auto&, auto& options) { options.extra_leases = 1; }),
              "LayoutMismatch", texts);
}

TEST_CASE("Ranks with different hyper-parameters get a LayoutMismatch that names the option, on "
          "every rank") {
    auto const named = [](std::string const& names) {
        return std::vector<std::string>{"rank 0 and rank 2",
                                        "have different options or policies: " + names
                                            + "; give all ranks the same."};
    };
    check_all(construct<Stage>([](auto&, auto& options) { options.optimizer.beta1 = 0.8; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage>([](auto&, auto& options) { options.optimizer.beta2 = 0.8; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage>([](auto&, auto& options) { options.optimizer.epsilon = 0.0; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage>([](auto&, auto& options) { options.optimizer.weight_decay = 0.1; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage>([](auto&, auto& options) {
                  options.groups = {{}, {}};
              }),
              "LayoutMismatch", named("'groups'"));
    using WithSgd = ZeroStage<1, Sgd>;
    check_all(construct<WithSgd>([](auto&, auto& options) { options.optimizer.momentum = 0.8; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(
        construct<WithSgd>([](auto&, auto& options) { options.optimizer.weight_decay = 0.1; }),
        "LayoutMismatch", named("'optimizer'"));
    check_all(construct<WithSgd>([](auto&, auto& options) { options.optimizer.nesterov = true; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(
        construct<Stage::with<Adam>>([](auto&, auto& options) { options.optimizer.beta1 = 0.8; }),
        "LayoutMismatch", named("'optimizer'"));
    check_all(
        construct<Stage::with<Lion>>([](auto&, auto& options) { options.optimizer.beta2 = 0.8; }),
        "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage::with<Adagrad>>(
                  [](auto&, auto& options) { options.optimizer.epsilon = 0.1; }),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct<Stage>([](auto&, auto& options) {
                  options.unused_parameters = UnusedParameters::error;
                  options.non_finite = NonFinite::step;
              }),
              "LayoutMismatch", named("'unused_parameters', 'non_finite'"));
    check_all(construct<Stage>([](auto&, auto& options) { options.bucketer.bucket_bytes = 1024; }),
              "LayoutMismatch", named("'bucketer' or the partitioner"));
    using Shares = ZeroStage<2, ProportionalPartitioner>;
    check_all(construct<Shares>([](auto&, auto& options) {
                  options.partitioner.shares = {1, 1, 2}; // those of the others are equal
              }),
              "LayoutMismatch", named("'bucketer' or the partitioner"));
    auto const refused = construct<Shares>([](auto&, auto& options) {
        options.partitioner.shares = {1, 1};
    });
    CHECK(refused.rethrown.type == "InvalidArgument");
    CHECK_THAT(refused.rethrown.message, contains_text("shares has 2 numbers for 3 ranks"));
}

TEST_CASE("Ranks that differ in a group's learning rate or optimizer option get a LayoutMismatch") {
    auto const outcomes = [](auto const& change) {
        return run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            Stage::Options options;
            options.groups = {{.learning_rate_factor = 0.5}, {}};
            if (communicator.rank() == 1) {
                change(options.groups[1]);
            }
            Stage engine(communicator, registration<float>(toy_specs()), options);
        });
    };
    check_all(outcomes([](auto& group) { group.learning_rate_factor = 0.25; }), "LayoutMismatch",
              {"rank 0 and rank 1", "options or policies: 'groups'; "});
    check_all(outcomes([](auto& group) { group.optimizer.beta2 = 0.5; }), "LayoutMismatch",
              {"rank 0 and rank 1", "options or policies: 'groups'; "});
    CHECK(outcomes([](auto&) {}).rethrown == Outcome{});
}

TEST_CASE("Ranks with different options of the loss scaler get a LayoutMismatch, but each may have "
          "its own callback context") {
    using Dynamic = ZeroStage<3, DynamicLossScaler>;
    std::vector<std::string> const texts{"have different options or policies: 'loss_scaler'; "};
    auto const differ = [&](auto member, auto value) {
        check_all(
            construct<Dynamic>([=](auto&, auto& options) { options.loss_scaler.*member = value; }),
            "LayoutMismatch", texts);
    };
    using Options = DynamicLossScalerOptions;
    differ(&Options::initial_scale, 4.0F);
    differ(&Options::growth_factor, 4.0);
    differ(&Options::backoff_factor, 0.25);
    differ(&Options::growth_interval, 10U);
    differ(&Options::growth_delay, 1U);
    differ(&Options::hysteresis, 1U);
    differ(&Options::consecutive_hysteresis, true);
    differ(&Options::minimum, 0.5F);
    differ(&Options::maximum, 0x1p30F);
    differ(&Options::at_maximum, AtMaximumScale::hold);
    differ(&Options::at_minimum, AtMinimumScale::throw_error);
    check_all(construct<ZeroStage<2, StaticLossScaler>>(
                  [](auto&, auto& options) { options.loss_scaler.scale = 2.0F; }),
              "LayoutMismatch", texts);
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        int calls = 0;
        Dynamic engine(communicator, registration<float>(toy_specs()),
                       {.loss_scaler = {.at_minimum = AtMinimumScale::call_back,
                                        .on_minimum = [](void*) {},
                                        .context = &calls}});
    });
    CHECK(outcomes.rethrown == Outcome{});
}

namespace {

/// Constructs a different composition on rank 1 than on the other ranks.
template <class First, class Second>
Outcomes construct_differently() {
    return run_and_observe(world, [](LoopbackCommunicator& communicator) {
        if (communicator.rank() == 1) {
            Second engine(
                communicator,
                registration<typename Second::ParameterType, typename Second::GradientType>(
                    toy_specs()));
        } else {
            First engine(communicator,
                         registration<typename First::ParameterType, typename First::GradientType>(
                             toy_specs()));
        }
    });
}

} // namespace

TEST_CASE("Ranks whose programs were compiled with different policies get a LayoutMismatch that "
          "names what differs") {
    auto const named = [](std::string const& names) {
        return std::vector<std::string>{"rank 0 and rank 1",
                                        "have different options or policies: " + names
                                            + "; give all ranks the same."};
    };
    check_all(construct_differently<Stage, Stage::with<Adam>>(), "LayoutMismatch",
              named("'optimizer'"));
    check_all(construct_differently<Stage, Stage::with<OptimizerState<bfloat16>>>(),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct_differently<Stage::with<OptimizerState<bfloat16>>,
                                    Stage::with<OptimizerState<bfloat16, RoundToNearest>>>(),
              "LayoutMismatch", named("'optimizer'"));
    check_all(construct_differently<Stage, Stage::with<StaticLossScaler>>(), "LayoutMismatch",
              named("'loss_scaler'"));
    using Half = ZeroStage<2, Parameters<bfloat16>>;
    check_all(construct_differently<Half, Half::with<MasterWeights<float16>>>(), "LayoutMismatch",
              named("'master_weights'"));
    check_all(construct_differently<Half, Half::with<SplitMasterWeights>>(), "LayoutMismatch",
              named("'master_weights'"));
    check_all(construct_differently<Half, Half::with<GradientReduction<bfloat16, float>>>(),
              "LayoutMismatch", named("'reduction'"));
    using Types = GradientReduction<float>;
    check_all(construct_differently<ZeroStage<2, Parameters<bfloat16>, Types, StaticLossScaler>,
                                    ZeroStage<2, Parameters<float16>, Types, StaticLossScaler>>(),
              "LayoutMismatch", named("'parameters'"));
}

TEST_CASE("Ranks in different stages get a LayoutMismatch, and equal ranks do not") {
    check_all(
        run_and_observe(world,
                        [](LoopbackCommunicator& communicator) {
                            if (communicator.rank() == 1) {
                                ZeroStage<1> engine(communicator, registration<float>(toy_specs()));
                            } else {
                                ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
                            }
                        }),
        "LayoutMismatch", {"rank 0 and rank 1"});
    for (Outcome const& outcome : construct<Stage>([](auto&, auto&) {}).ranks) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("Units acquired in another order on one rank of stage 3 give a CollectiveMismatch that "
          "names both sides") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()));
        auto const weights = engine.acquire(communicator.rank() == 1 ? 3U : 1U);
    });
    check_all(outcomes, "CollectiveMismatch",
              {"rank 0 called all-gather of 576 float32 ('parameters of bucket",
               "rank 1 called all-gather of 192 float32 ('parameters of bucket"});
}

TEST_CASE("A parameter that one rank does not use is an error on that rank, and the others get "
          "Aborted with its name") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.unused_parameters = UnusedParameters::error});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            if (communicator.rank() != 1 || unit != 2) {
                engine.gradients_ready(unit);
            }
        }
        engine.end_micro_step();
    });
    CHECK(outcomes.ranks[1].type == "UnusedParameter");
    CHECK_THAT(outcomes.ranks[1].message,
               contains_text("parameter 'second.weight' got no gradient in this micro-step, or it "
                             "was not reported (rank 1)"));
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes.ranks[rank].type == "Aborted");
        CHECK_THAT(outcomes.ranks[rank].message, contains_text("'second.weight'"));
    }
    CHECK(outcomes.rethrown == outcomes.ranks[1]);
}

TEST_CASE("A checked communicator compares readiness, and every rank gets both sides") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        Checked<LoopbackCommunicator> checked(communicator);
        ZeroStage<2, Checked<LoopbackCommunicator>, SingleBucketer> engine(
            checked, registration<float>(toy_specs()),
            {.unused_parameters = UnusedParameters::error});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            if (unit != 4 && (communicator.rank() != 1 || unit != 2)) {
                engine.gradients_ready(unit);
            }
        }
        if (communicator.rank() != 1) {
            engine.gradients_ready(4);
        }
        engine.end_micro_step();
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(outcomes.ranks[rank].type == "UnusedParameter");
        CHECK_THAT(
            outcomes.ranks[rank].message,
            contains_text("parameter 'embedding' got no gradient")
                && contains_text("rank 0 has all, rank 1 lacks 'embedding', rank 2 has all"));
        CHECK_THAT(outcomes.ranks[rank].message, contains_text("(rank " + std::to_string(rank)));
    }
}

TEST_CASE("A checked communicator names both sides of a collective that differs") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        Checked<LoopbackCommunicator> checked(communicator);
        ZeroStage<3, Checked<LoopbackCommunicator>> engine(checked,
                                                           registration<float>(toy_specs()));
        auto const weights = engine.acquire(communicator.rank() == 1 ? 3U : 1U);
    });
    check_all(
        outcomes, "CollectiveMismatch",
        {"rank 0 called all-gather of 576 float32", "rank 1 called all-gather of 192 float32"});
}

} // namespace zero::test::agreement_test
