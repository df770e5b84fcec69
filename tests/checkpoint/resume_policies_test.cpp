#include "check_resume.hpp"
#include "support/catch.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/training_state.hpp>

#include <string>
#include <vector>

// Resumed runs, as in resume_test.cpp, for every optimizer, for weighted means, and around a
// rebuild of the buckets.

namespace zero::test::resume_policies_test {

using namespace engine_model;

TEST_CASE("A run resumes with the same bits: optimizers that update elements") {
    check_resume<ZeroStage<2, Sgd>, ZeroStage<3, Sgd>>(
        {.optimizer = {.momentum = 0.9F, .nesterov = true}},
        {.optimizer = {.momentum = 0.9F, .nesterov = true}});
    check_resume<ZeroStage<1, Adam>, ZeroStage<2, Adam>>();
    check_resume<ZeroStage<3, Lion>, ZeroStage<0, Lion>>();
    check_resume<ZeroStage<0, Adagrad>, ZeroStage<2, Adagrad>>();
    check_resume<ZeroStage<2, Averaged<AdamW>>, ZeroStage<3, Averaged<AdamW>>>(
        {.optimizer = {.decay = 0.75, .begin = 2}}); // which the checkpoint brings
}

TEST_CASE("An average begins at the weights of a checkpoint without one, which trains on") {
    TemporaryFolder const folder;
    auto const seen = on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<1>> plain(communicator);
        train(*plain.engine, communicator, 0, 3);
        save_checkpoint(*plain.engine, folder.path());
        Toy<ZeroStage<1, Averaged<AdamW>>> averaged(communicator, {.optimizer = {.decay = 0.5}});
        auto const report = load_checkpoint(*averaged.engine, folder.path(), {.may_differ = true});
        TrainingState state(*averaged.engine);
        bool is_right = report.without_states.empty() && state.updates(0) == 3
                        && state.full_optimizer_state(0, "average") == state.full_fp32_parameter(0);
        train(*plain.engine, communicator, 3, 5);
        train(*averaged.engine, communicator, 3, 5);
        TrainingState other(*plain.engine);
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            is_right = is_right && state.full_fp32_parameter(p) == other.full_fp32_parameter(p);
        }
        is_right =
            is_right && state.full_optimizer_state(0, "average") != state.full_fp32_parameter(0);
        return is_right ? 1 : 0;
    });
    CHECK(seen == std::vector{1, 1});
}

TEST_CASE("A run resumes with the same bits: optimizers that update whole parameters") {
    check_resume<ZeroStage<2, RoundRobinPartitioner, Lamb>, ZeroStage<0, Lamb>>();
    check_resume<ZeroStage<0, Muon>, ZeroStage<3, RoundRobinPartitioner, Muon>>();
    check_resume<ZeroStage<3, BalancedPartitioner, Muon>,
                 ZeroStage<2, WholeMatrixPartitioner, Muon>>();
    check_resume<ZeroStage<1, WholeMatrixPartitioner, Muon>,
                 ZeroStage<3, RoundRobinPartitioner, Muon>>();
}

TEST_CASE("A checkpoint brings the hyper-parameters of its optimizer") {
    // `check_resume` compares with the run that has a momentum; this engine was made without one.
    check_resume<ZeroStage<2, Sgd>, ZeroStage<2, Sgd>>({.optimizer = {.momentum = 0.9F}},
                                                       {.optimizer = {.momentum = 0.5F}});
}

TEST_CASE("A run resumes with the same bits: gradients weighted by the samples of each rank") {
    auto const weighted = [](auto& engine, LoopbackCommunicator& communicator, std::uint64_t begin,
                             std::uint64_t end) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        for (std::uint64_t step = begin; step < end; ++step) {
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(2)) {
                run_micro_step(engine, rank, step, micro_step, scale);
            }
            engine.step(0.01, static_cast<std::int64_t>(3 + 2 * rank + step));
        }
    };
    using P = Parameters<bfloat16>;
    check_resume<ZeroStage<1, P>, ZeroStage<3, P>>(
        {.reduction = {.kind = ReductionKind::weighted_mean}},
        {.reduction = {.kind = ReductionKind::weighted_mean}}, weighted);
}

namespace {

struct OtherScaler {
    std::string refusal;
    std::vector<std::string> differences;
    float scale = 0.0F; ///< after the load
    std::uint64_t steps = 0;
};

/// Saves with one loss scaler and loads with another, without and with `may_differ`.
template <class Saves, class Loads>
OtherScaler change_scaler(typename Loads::Options const& options) {
    TemporaryFolder const folder;
    return on_ranks<OtherScaler>(2, [&](LoopbackCommunicator& communicator) {
        Toy<Saves> old(communicator);
        train(*old.engine, communicator, 0, 2);
        save_checkpoint(*old.engine, folder.path());
        Toy<Loads> next(communicator, options);
        OtherScaler seen;
        seen.refusal = outcome_of([&] { load_checkpoint(*next.engine, folder.path()); }).message;
        auto const report = load_checkpoint(*next.engine, folder.path(), {.may_differ = true});
        seen.differences = report.differences;
        seen.scale = next.engine->loss_scaler_state().scale;
        seen.steps = next.engine->step_count();
        return seen;
    })[1];
}

} // namespace

TEST_CASE("Another loss scaler keeps its state if a load may differ, and is refused otherwise") {
    using Static = ZeroStage<2, StaticLossScaler>;
    using Dynamic = ZeroStage<2, DynamicLossScaler>;
    auto const check = [](OtherScaler const& seen, std::string const& name, float scale) {
        INFO(seen.refusal);
        CHECK_THAT(seen.refusal, contains_text("the loss scaler " + name + " cannot continue")
                                     && contains_text("LoadOptions::may_differ"));
        REQUIRE(seen.differences.size() == 1);
        CHECK_THAT(seen.differences[0], contains_text("the loss scaler " + name + " keeps"));
        CHECK(seen.scale == scale);
        CHECK(seen.steps == 2);
    };
    check(change_scaler<Static, Dynamic>({.loss_scaler = {.initial_scale = 64.0F}}),
          "DynamicLossScaler", 64.0F);
    check(change_scaler<Dynamic, ZeroStage<2>>({}), "NoLossScaler", 1.0F);
}

namespace {

/// Returns the names of the parameters in bucket order.
template <class Stage>
std::string buckets_of(Stage const& engine) {
    std::string text;
    for (std::size_t bucket = 0; bucket < engine.layout().buckets(); ++bucket) {
        for (Piece const& piece : engine.layout().pieces(bucket)) {
            text += engine.layout().parameter(piece.parameter).name + ' ';
        }
        text += "| ";
    }
    return text;
}

} // namespace

TEST_CASE("An engine that was loaded rebuilds its buckets as a new one does") {
    using Stage = ZeroStage<2, UnitBucketer>;
    // The units become ready in another order than the planned one.
    auto const in_order = [](auto& engine, LoopbackCommunicator& communicator, std::uint64_t begin,
                             std::uint64_t end) {
        for (std::uint64_t step = begin; step < end; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2, 0.01,
                           8, {1, 2, 3, 4, 0});
        }
    };
    auto const options = [] {
        return Stage::Options{
            .extra_leases = 4, .rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 8};
    };
    check_resume<Stage, Stage>(options(), options(), in_order);
    check_resume<Stage, Stage>(options(), {.extra_leases = 8}, in_order);

    TemporaryFolder const folder;
    auto const seen =
        on_ranks<std::vector<std::string>>(world, [&](LoopbackCommunicator& communicator) {
            std::vector<std::string> layouts;
            Toy<Stage> straight(communicator, same_schedule<Stage>(options()));
            layouts.push_back(buckets_of(*straight.engine));
            in_order(*straight.engine, communicator, 0, 3);
            layouts.push_back(buckets_of(*straight.engine));
            save_checkpoint(*straight.engine, folder.path());
            Toy<Stage> loaded(communicator, same_schedule<Stage>(options()));
            load_checkpoint(*loaded.engine, folder.path());
            layouts.push_back(buckets_of(*loaded.engine));
            in_order(*loaded.engine, communicator, 3, 5);
            layouts.push_back(buckets_of(*loaded.engine));
            return layouts;
        });
    for (auto const& layouts : seen) {
        CHECK(layouts[1] != layouts[0]);
        CHECK(layouts[2] == layouts[0]);
        CHECK(layouts[3] == layouts[1]);
    }
}

} // namespace zero::test::resume_policies_test
