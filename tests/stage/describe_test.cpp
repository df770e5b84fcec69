#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/experts.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/zero_stage.hpp>

#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::describe_test {

namespace {

/// The line about the toy model.
std::string const empty = "\nnot used in this stage: 1 parameter without elements ('third.empty')";

} // namespace

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

TEST_CASE("A description lists the options that another stage would use, one line each") {
    auto const lines = []<int N>(int world) {
        return on_ranks<std::vector<std::string>>(world, [](LoopbackCommunicator& communicator) {
            ZeroStage<N> const engine(communicator, {{.name = "w", .elements = 300}},
                                      {.gather = {.prefetch_elements = 10,
                                                  .persistence_threshold = 8,
                                                  .max_persistent_elements = 100,
                                                  .max_reuse_distance = 5,
                                                  .keep_after_forward = 1,
                                                  .keep_until_update = 1,
                                                  .max_live_elements = 4096,
                                                  .changed_order = ChangedOrder::error},
                                       .update_tile_elements = 64});
            std::string expected = describe<ZeroStage<N>>();
            for (std::string const& option : engine.unused_options()) {
                expected += "\nnot used in this stage: " + option;
            }
            return std::vector<std::string>{describe(engine), expected};
        })[0];
    };
    std::string const gather =
        "\nnot used in this stage: gather.prefetch_elements (stage 3 uses it)"
        "\nnot used in this stage: gather.persistence_threshold (stage 3 "
        "uses it)"
        "\nnot used in this stage: gather.max_persistent_elements (stage 3 "
        "uses it)"
        "\nnot used in this stage: gather.max_reuse_distance (stage 3 uses "
        "it)"
        "\nnot used in this stage: gather.keep_after_forward (stage 3 uses "
        "it)"
        "\nnot used in this stage: gather.keep_until_update (stage 3 uses "
        "it)"
        "\nnot used in this stage: gather.max_live_elements (stage 3 uses "
        "it)"
        "\nnot used in this stage: gather.changed_order (stage 3 uses it)";
    std::string const tiles =
        "\nnot used in this stage: update_tile_elements (stages 0 and 3 use it, and a single rank "
        "in every stage)";
    CHECK(lines.operator()<0>(2)[0] == describe<ZeroStage<0>>() + gather);
    CHECK(lines.operator()<1>(2)[0] == describe<ZeroStage<1>>() + gather + tiles);
    CHECK(lines.operator()<2>(2)[0] == describe<ZeroStage<2>>() + gather + tiles);
    CHECK(lines.operator()<2>(1)[0] == describe<ZeroStage<2>>() + gather);
    CHECK(lines.operator()<3>(2)[0]
          == describe<ZeroStage<3>>()
                 + ", no unit kept until the update, because keep_until_update is 1 elements and "
                   "unit 0 has more");
    CHECK(lines.operator()<3>(1)[0] == describe<ZeroStage<3>>()); // a single rank gathers nothing
    CHECK(lines.operator()<1>(2)[0] == lines.operator()<1>(2)[1]);
}

TEST_CASE("A description says how many units are kept until the update") {
    auto const text = [](std::size_t most) {
        return on_ranks<std::string>(2, [&](LoopbackCommunicator& ranks) {
            return describe(ZeroStage<3>(ranks, registration<float>(toy_specs()),
                                         {.unit_names = {"in", "1", "2", "3", "out"},
                                          .gather = {.keep_until_update = most}}))
                .substr(describe<ZeroStage<3>>().size());
        })[0];
    };
    CHECK(text(0) == empty);
    CHECK(text(299)
          == ", no unit kept until the update, because keep_until_update is 299 elements and unit "
             "0 ('in') has more"
                 + empty);
    std::string const of_five = " of 5 units kept until the update" + empty;
    CHECK(text(300) == ", 1" + of_five); // the head shares the embedding
    CHECK(text(300 + 507 + 169) == ", 3" + of_five);
    CHECK(text(GatherOptions::all) == ", 5" + of_five);
}

TEST_CASE("A description says that a step has one micro-step, and where that saves no memory") {
    auto const text = []<class Stage>(int world) {
        return on_ranks<std::string>(world, [](LoopbackCommunicator& communicator) {
            Stage const engine(communicator,
                               registration<typename Stage::ParameterType>(toy_specs()),
                               {.reduction = {.one_micro_step = true}});
            return describe(engine);
        })[0];
    };
    std::string const promise = ", one micro-step per step";
    std::string const unused =
        "\nnot used in this stage: reduction.one_micro_step (it saves memory where sums have the "
        "type of the gradients, in stages 0 and 1, and with a single rank in every stage)";
    CHECK(text.operator()<ZeroStage<1>>(2) == describe<ZeroStage<1>>() + promise + empty);
    CHECK(text.operator()<ZeroStage<2>>(1) == describe<ZeroStage<2>>() + promise + empty);
    CHECK(text.operator()<ZeroStage<2>>(2) == describe<ZeroStage<2>>() + promise + unused + empty);
    using Half = ZeroStage<1, Parameters<bfloat16>>;
    CHECK(text.operator()<Half>(1) == describe<Half>() + promise + unused + empty);
}

TEST_CASE("A description lists what registrations and options say that nothing reads") {
    auto const text = []<class Stage>(typename Stage::Options const& options) {
        return on_ranks<std::string>(2, [&](LoopbackCommunicator& communicator) {
            std::vector<typename Stage::Registration> list{
                {.name = "a", .elements = 12, .rows = 3},
                {.name = "b", .group = 1, .shape = {3, 4}, .update = Update::elements},
                {.name = "c", .group = 1, .shape = {3, 4}},
                {.name = "d", .update = Update::matrix}};
            return describe(Stage(communicator, list, options)).substr(describe<Stage>().size());
        })[0];
    };
    std::string const line = "\nnot used in this stage: ";
    std::string const none = line + "1 parameter without elements ('d')";
    auto const matrices = [&](std::string const& names) {
        return line + "Update::matrix of " + names.substr(0, 1)
               + " parameters, which this optimizer updates element by element (" + names.substr(2)
               + ")";
    };
    CHECK(text.operator()<ZeroStage<2>>({}) == none + matrices("2 'a', 'd'"));
    CHECK(text.operator()<ZeroStage<2>>({.groups = {{}, {.update = Update::matrix}}})
          == none + matrices("3 'a', 'c', 'd'"));
    std::string const muon = text.operator()<ZeroStage<2, RoundRobinPartitioner, Muon>>(
        {.groups = {{}, {.update = Update::matrix}}});
    CHECK_THAT(muon, contains_text("updates 2 parameters as matrices ('a' 3 x 4, 'c' 3 x 4)"));
    CHECK_THAT(muon, contains_text(none));
    CHECK(muon.find("Update::matrix of") == std::string::npos);
    auto const none_skipped =
        line + "on_skip (non_finite is NonFinite::step, so no step is skipped)";
    auto const on_skip = [](std::string const&) {};
    CHECK(text.operator()<ZeroStage<2>>({.on_skip = on_skip}) == text.operator()<ZeroStage<2>>({}));
    CHECK_THAT(text.operator()<ZeroStage<2>>({.non_finite = NonFinite::step, .on_skip = on_skip}),
               contains_text(none_skipped));
    std::string const limited = text.operator()<ZeroStage<2>>(
        {.skip_above_norm = {.limit = 1.0F}, .non_finite = NonFinite::step, .on_skip = on_skip});
    CHECK(limited.find("on_skip") == std::string::npos);
    std::string const bytes =
        line + "reduction.wire_bytes (gradients are sent from where they lie)";
    CHECK_THAT(text.operator()<ZeroStage<2>>({.reduction = {.wire_bytes = 4096}}),
               contains_text(bytes));
    using Wide = ZeroStage<2, GradientReduction<float, bfloat16>>;
    CHECK(text.operator()<Wide>({.reduction = {.wire_bytes = 4096}}) == text.operator()<Wide>({}));
}

TEST_CASE("A description names the sizes of all parts of groups, and this rank's part of a model") {
    auto const texts = on_ranks<std::vector<std::string>>(8, [](LoopbackCommunicator& everyone) {
        std::vector<Parameter<float>> const parameters{{.name = "w", .elements = 300}};
        auto const text = [&]<class C>(C& ranks) {
            return describe(ZeroStage<3, C>(ranks, parameters))
                .substr(describe<ZeroStage<3, C>>().size());
        };
        using Hosts = Groups<LoopbackCommunicator, Hybrid>;
        using Copies = Groups<Hosts, Secondary>;
        Hosts hosts(everyone, {.shard = 4});
        Copies copies(hosts, {.secondary = 2});
        Groups<LoopbackCommunicator, ModelParallel> model(everyone, {.model = 4});
        Groups<LoopbackCommunicator, Experts> experts(everyone, {.experts = 2});
        Groups<LoopbackCommunicator, Experts> cut_experts(everyone, {.experts = 1, .model = 4});
        auto const part = static_cast<std::size_t>(experts.model().rank());
        ZeroStage<3, decltype(experts)> const sparse(
            experts, {{.name = "expert " + std::to_string(part), .elements = 300}});
        return std::vector<std::string>{
            text(everyone),
            text(hosts),
            text(copies),
            text(model),
            text(cut_experts),
            describe(sparse).substr(describe<ZeroStage<3, decltype(experts)>>().size())};
    });
    for (std::size_t rank = 0; rank < 8; ++rank) {
        CHECK(texts[rank]
              == std::vector<std::string>{
                  "", ", sharded over 4 ranks of each of 2 replicas",
                  ", sharded over 4 ranks of each of 2 replicas, secondary copies on 2 ranks each",
                  ", model rank " + std::to_string(rank % 4) + " of 4, 2 data ranks",
                  ", expert rank 0 of 1, model rank " + std::to_string(rank % 4)
                      + " of 4, 2 ranks with the same experts",
                  ", expert rank " + std::to_string(rank % 2)
                      + " of 2, 4 ranks with the same experts"});
    }
}

TEST_CASE("An option that no stage would use is refused in every stage") {
    in_every_stage([]<int N>() {
        auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
            return outcome_of([&] {
                ZeroStage<N> const engine(communicator, {{.name = "w", .elements = 300}},
                                          {.gather = {.max_persistent_elements = 100}});
            });
        });
        CHECK(outcomes[1].type == "InvalidArgument");
        CHECK_THAT(outcomes[1].message,
                   contains_text("gather.max_persistent_elements is 100, which no stage would use "
                                 "without gather.persistence_threshold"));
    });
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
