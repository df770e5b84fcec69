#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/zero_stage.hpp>

#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::describe_test {

TEST_CASE("A composition is described in one line, defaults included") {
    CHECK(describe<ZeroStage<2>>()
          == "ZeroStage<2>: float32 parameters (gradients float32, sent as float32, accumulated in "
             "float32, master weights none), "
             "ContiguousPartitioner, SizeCappedBucketer, Loopback<HostBackend>, NoLossScaler, "
             "AdamW with OptimizerState<float>, reduced by every_micro_step (the stage's default)");
    CHECK(describe<ZeroStage<3, Sgd, Parameters<bfloat16, float>, GradientReduction<float>,
                             RoundRobinPartitioner>>()
          == "ZeroStage<3>: bfloat16 parameters (gradients float32, sent as float32, accumulated "
             "in float32, master weights float32), float32 "
             "parameters (gradients float32, sent as float32, accumulated in float32, master "
             "weights none), RoundRobinPartitioner, "
             "UnitBucketer, Loopback<HostBackend>, NoLossScaler, Sgd with OptimizerState<float>, "
             "reduced by every_micro_step (the stage's default)");
}

TEST_CASE("A description says how 16-bit states are rounded") {
    CHECK_THAT((describe<ZeroStage<1, OptimizerState<bfloat16>>>()),
               contains_text("AdamW with OptimizerState<bfloat16> (rounded stochastically), "));
    CHECK_THAT((describe<ZeroStage<1, OptimizerState<bfloat16, RoundToNearest>>>()),
               contains_text("AdamW with OptimizerState<bfloat16, RoundToNearest>, "));
}

TEST_CASE("A description says when gradients are reduced, which differs between stages") {
    CHECK_THAT(describe<ZeroStage<1>>(),
               contains_text(", reduced by boundary (the stage's default)"));
    auto const texts =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            std::vector<Parameter<float>> const parameters{{.name = "w", .elements = 3}};
            ZeroStage<1> const usual(communicator, parameters);
            ZeroStage<1> const other(
                communicator, parameters,
                {.reduction = {.schedule = ReductionSchedule::every_micro_step}});
            return std::vector<std::string>{
                describe(usual), describe(other),
                describe(static_cast<ZeroStage<1>::EngineType const&>(usual))};
        })[0];
    CHECK(texts[0] == describe<ZeroStage<1>>());
    CHECK_THAT(texts[1], contains_text(", reduced by every_micro_step"));
    CHECK(texts[1].find("default") == std::string::npos);
    CHECK(texts[2]
          == "ZeroStage<1>: float32 parameters (gradients float32, sent as float32, accumulated in "
             "float32, master weights none), Loopback<HostBackend>, NoLossScaler, AdamW with "
             "OptimizerState<float>, reduced by boundary (the stage's default)");
}

TEST_CASE("The member with replaces the policy of a category, or adds it") {
    using Stage = ZeroStage<2, Sgd, Parameters<bfloat16>, RoundRobinPartitioner>;
    STATIC_REQUIRE(
        std::is_same_v<Stage::with<AdamW>,
                       ZeroStage<2, Parameters<bfloat16>, RoundRobinPartitioner, AdamW>>);
    STATIC_REQUIRE(std::is_same_v<Stage::with<Parameters<float>>,
                                  ZeroStage<2, Sgd, RoundRobinPartitioner, Parameters<float>>>);
    STATIC_REQUIRE(
        std::is_same_v<Stage::with<UnitBucketer>, ZeroStage<2, Sgd, Parameters<bfloat16>,
                                                            RoundRobinPartitioner, UnitBucketer>>);
    STATIC_REQUIRE(std::is_same_v<ZeroStage<1>::with<Sgd>, ZeroStage<1, Sgd>>);
}

TEST_CASE("The member at_stage keeps the policies") {
    STATIC_REQUIRE(std::is_same_v<ZeroStage<2, Sgd>::at_stage<3>, ZeroStage<3, Sgd>>);
}

} // namespace zero::test::describe_test
