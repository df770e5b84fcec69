#include "check_resume.hpp"
#include "support/catch.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/policy/loss_scaler_presets.hpp>

#include <array>
#include <type_traits>

// A run that is saved and continues in a fresh engine of another stage gives the same bits as one
// that never stopped.

namespace zero::test::resume_test {

using namespace engine_model;

TEST_CASE("A run resumes with the same bits: float, in stage 3 with another partitioner") {
    check_resume<ZeroStage<2>, ZeroStage<3, RoundRobinPartitioner>>();
    check_resume<ZeroStage<3, RoundRobinPartitioner>, ZeroStage<0>>();
    check_resume<ZeroStage<0>, ZeroStage<1, WholeGroupPartitioner>>();
}

TEST_CASE("A run resumes with the same bits: every form of master weights") {
    using P = Parameters<bfloat16>;
    check_resume<ZeroStage<0, P>, ZeroStage<2, P>>();
    check_resume<ZeroStage<3, P, SplitMasterWeights>, ZeroStage<1, P, SplitMasterWeights>>();
    check_resume<ZeroStage<2, P, StochasticRounding>,
                 ZeroStage<3, P, StochasticRounding, RoundRobinPartitioner>>();
    check_resume<ZeroStage<1, P, NoMasterWeights>, ZeroStage<3, P, NoMasterWeights>>();
}

TEST_CASE("A run resumes with the same bits: optimizer states in 16 bits") {
    using Scaled = BlockScaledState<float16>;
    check_resume<ZeroStage<2, Scaled>, ZeroStage<3, Scaled>>();
    check_resume<ZeroStage<0, Scaled>, ZeroStage<1, Scaled>>();
    check_resume<ZeroStage<3, OptimizerState<bfloat16>>, ZeroStage<0, OptimizerState<bfloat16>>>();
}

TEST_CASE("A run resumes with the same bits: optimizer states in 8 bits") {
    using Scaled = BlockScaledState<power8>;
    check_resume<ZeroStage<2, Scaled>, ZeroStage<3, Scaled>>();
    check_resume<ZeroStage<0, Scaled>, ZeroStage<1, Scaled, RoundRobinPartitioner>>();
    using P = Parameters<bfloat16>;
    check_resume<ZeroStage<3, P, SplitMasterWeights, Scaled>,
                 ZeroStage<2, P, SplitMasterWeights, Scaled>>();
}

TEST_CASE(
    "States in 8 bits are loaded into float states exactly, and other states into them if they may "
    "be rounded") {
    using Eight = ZeroStage<2, BlockScaledState<power8>>;
    using Float = ZeroStage<3>;
    TemporaryFolder const folder, again;
    using Found = std::array<std::string, 2>;
    auto const seen = on_ranks<Found>(2, [&](LoopbackCommunicator& communicator) -> Found {
        Toy<Eight> saves(communicator, same_schedule<Eight>());
        train(*saves.engine, communicator, 0, 3);
        save_checkpoint(*saves.engine, folder.path());
        Toy<Float> loads(communicator, same_schedule<Float>());
        load_checkpoint(*loads.engine, folder.path());
        bool const is_exact = state_of(*saves.engine) == state_of(*loads.engine);
        train(*loads.engine, communicator, 3, 4);
        save_checkpoint(*loads.engine, again.path());
        Outcome const refused = outcome_of([&] { load_checkpoint(*saves.engine, again.path()); });
        load_checkpoint(*saves.engine, again.path(), {.may_round = true});
        Bits const rounded = state_of(*saves.engine);
        bool const is_rounded = rounded != state_of(*loads.engine);
        load_checkpoint(*saves.engine, again.path(), {.may_round = true});
        return {refused.message,
                is_exact && is_rounded && rounded == state_of(*saves.engine) ? "" : "wrong"};
    });
    for (auto const& [refusal, wrong] : seen) {
        CHECK_THAT(refusal, contains_text("is stored as F32, which this engine rounds"));
        CHECK(wrong == "");
    }
}

TEST_CASE("A checkpoint does not depend on how 16-bit states are rounded") {
    using Nearest = ZeroStage<3, OptimizerState<bfloat16, RoundToNearest>>;
    using Stochastic = ZeroStage<2, OptimizerState<bfloat16>>;
    auto const check = []<class Saves, class Loads>(std::type_identity<Saves>,
                                                    std::type_identity<Loads>) {
        TemporaryFolder const folder;
        auto const seen = on_ranks<std::array<Bits, 4>>(
            2, [&](LoopbackCommunicator& communicator) -> std::array<Bits, 4> {
                Toy<Saves> saves(communicator, same_schedule<Saves>());
                train(*saves.engine, communicator, 0, 3);
                save_checkpoint(*saves.engine, folder.path());
                Bits const saved = state_of(*saves.engine);
                train(*saves.engine, communicator, 3, 4);
                Toy<Loads> loads(communicator, same_schedule<Loads>());
                load_checkpoint(*loads.engine, folder.path());
                Bits const loaded = state_of(*loads.engine);
                train(*loads.engine, communicator, 3, 4);
                return {saved, loaded, state_of(*saves.engine), state_of(*loads.engine)};
            });
        for (auto const& [saved, loaded, after, other] : seen) {
            CHECK(saved == loaded);
            CHECK(after != other);
        }
    };
    check(std::type_identity<Nearest>{}, std::type_identity<Stochastic>{});
    check(std::type_identity<Stochastic>{}, std::type_identity<Nearest>{});
}

TEST_CASE("A run resumes with the same bits: a loss scaler between two growths, after a skip") {
    using Stage = ZeroStage<1, Parameters<float16>, DynamicLossScaler>;
    using Other = ZeroStage<3, Parameters<float16>, DynamicLossScaler>;
    check_resume<Stage, Other>(
        {.loss_scaler = {.initial_scale = 0x1p24F, .growth_interval = 2, .hysteresis = 1}},
        {.loss_scaler = {.initial_scale = 0x1p24F, .growth_interval = 2, .hysteresis = 1}});
}

TEST_CASE("A run resumes with the same bits: several types of parameters") {
    using P = Parameters<bfloat16, float>;
    check_resume<ZeroStage<2, P>, ZeroStage<3, P>>();
    check_resume<ZeroStage<3, P>, ZeroStage<1, P, RoundRobinPartitioner>>();
}

TEST_CASE("A run resumes with the same bits: parameters in the memory of the caller") {
    using Stage = ZeroStage<2, Parameters<bfloat16>>;
    using Other = ZeroStage<3, Parameters<bfloat16>>;
    check_resume<Stage, Other>({.storage = Storage::adopted});
    check_resume<Other, Stage>({}, {.storage = Storage::adopted});
    check_resume<Stage, Stage>({.storage = Storage::scattered}, {.storage = Storage::adopted});
    using Split = ZeroStage<2, Parameters<bfloat16>, SplitMasterWeights>;
    check_resume<Split, Split>({.storage = Storage::adopted}, {.storage = Storage::scattered});
}

TEST_CASE("Inside a step a checkpoint is neither saved nor loaded") {
    TemporaryFolder const folder;
    auto const seen =
        on_ranks<std::vector<std::string>>(2, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<2>> toy(communicator);
            toy.engine->begin_step();
            std::vector<std::string> types{
                outcome_of([&] { save_checkpoint(*toy.engine, folder.path()); }).type,
                outcome_of([&] { load_checkpoint(*toy.engine, folder.path()); }).type};
            toy.engine->cancel_step();
            return types;
        });
    for (auto const& types : seen) {
        CHECK(types == std::vector<std::string>{"OutOfOrder", "OutOfOrder"});
    }
    CHECK(std::filesystem::is_empty(folder.path()));
}

} // namespace zero::test::resume_test
