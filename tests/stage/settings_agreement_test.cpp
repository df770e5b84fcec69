#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

// Differences between ranks that the sequence of collectives does not reveal. Without these checks
// replicas would drift apart silently.

namespace zero::test::settings_agreement_test {

namespace {

template <int N>
using Engine = ZeroStage<N, DynamicLossScaler>;

/// Rank 1 alone calls `differ(engine)` before the second step. The micro-steps and the learning
/// rate of that step are `count_of(rank)` and `rate_of(rank)`.
/// @return the message of the CollectiveMismatch on every rank, or "agreed" if none was thrown
template <int N>
std::string text_of(GradientReductionOptions const& reduction,
                    std::function<void(Engine<N>&)> const& differ, std::size_t count_of_rank_1 = 2,
                    double rate_of_rank_1 = 0.01) {
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        Engine<N> engine(communicator, registration<float>(toy_specs()), {.reduction = reduction});
        bool const is_weighted = reduction.kind == ReductionKind::weighted_mean;
        for (std::uint64_t step = 0; step < 3; ++step) {
            bool const differs = rank == 1 && step == 1;
            if (differs) {
                differ(engine);
            }
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(differs ? count_of_rank_1 : 2)) {
                run_micro_step(engine, rank, step, micro_step, scale);
            }
            double const rate = differs ? rate_of_rank_1 : 0.01;
            (void)(is_weighted ? engine.step(rate, 3) : engine.step(rate)).report();
        }
    });
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == outcomes.ranks[0].type);
        CHECK(outcome.message == outcomes.ranks[0].message);
    }
    return outcomes.ranks[0].type == "returned" ? "agreed" : outcomes.ranks[0].message;
}

template <class T>
void nothing(T&) {}

} // namespace

TEST_CASE(
    "A rank with another number of micro-steps gives a mismatch where the mean divides by it") {
    in_every_stage([]<int N>() {
        auto const none = nothing<Engine<N>>;
        auto const boundary = ReductionSchedule::boundary;
        CHECK((text_of<N>({.schedule = boundary}, none)) == "agreed");
        if (N == 3) { // in stage 3 the gathers differ before the norm is reduced
            CHECK_THAT((text_of<N>({.schedule = boundary}, none, 3)),
                       contains_text("'parameters of bucket 2'"));
            return;
        }
        CHECK_THAT((text_of<N>({.schedule = boundary}, none, 3)),
                   contains_text(" after 2 micro-steps, steps and settings")
                       && contains_text(" after 3 micro-steps, steps and settings"));
        CHECK((text_of<N>({.kind = ReductionKind::sum, .schedule = boundary}, none, 3))
              == "agreed");
        CHECK((text_of<N>({.kind = ReductionKind::mean_over_ranks, .schedule = boundary}, none, 3))
              == "agreed");
        CHECK((text_of<N>({.kind = ReductionKind::weighted_mean, .schedule = boundary}, none, 3))
              == "agreed");
    });
}

TEST_CASE("A rank with another learning rate, other settings or an extra step gives a mismatch") {
    in_every_stage([]<int N>() {
        auto const differs = contains_text(", steps and settings as hash ");
        auto const none = nothing<Engine<N>>;
        CHECK_THAT((text_of<N>({}, none, 2, 0.02)), differs);
        CHECK_THAT((text_of<N>({}, [](Engine<N>& engine) { engine.set_learning_rate(1, 0.5); })),
                   differs);
        CHECK_THAT(
            (text_of<N>({},
                        [](Engine<N>& engine) { engine.set_hyper_parameters(0, {.beta1 = 0.8}); })),
            differs);
        CHECK_THAT((text_of<N>({}, [](Engine<N>& engine) { engine.set_loss_scale(1024.0F); })),
                   differs);
        CHECK_THAT((text_of<N>({},
                               [](Engine<N>& engine) {
                                   auto state = engine.loss_scaler_state();
                                   state.scale = 512.0F;
                                   engine.set_loss_scaler_state(state);
                               })),
                   differs);
        CHECK_THAT((text_of<N>({},
                               [](Engine<N>& engine) {
                                   engine.begin_step();
                                   engine.cancel_step();
                               })),
                   differs);
    });
}

TEST_CASE("A learning rate factor of 0 on one rank gives a mismatch, and -0 is the same as 0") {
    auto const differs = contains_text("steps and settings as hash ");
    CHECK_THAT((text_of<2>({}, [](Engine<2>& engine) { engine.set_learning_rate(1, 0.0); })),
               differs);
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        double const zero = communicator.rank() == 0 ? 0.0 : -0.0;
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.groups = {{}, {.learning_rate_factor = zero}}});
        engine.set_learning_rate(0, zero);
        if (run_step(engine, 0, 0, 1, zero).report().is_skipped) {
            throw std::logic_error("the step was skipped");
        }
    });
    CHECK(outcomes.ranks[0] == Outcome{});
    CHECK(outcomes.ranks[1] == Outcome{});
}

TEST_CASE("Settings are compared in steps that inspect nothing") {
    in_every_stage([]<int N>() {
        using Plain = ZeroStage<N>;
        auto const outcome_of = [](ReductionKind kind, double rate_of_rank_1, auto const& differ) {
            return run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                Plain engine(communicator, registration<float>(toy_specs()),
                             {.non_finite = NonFinite::step, .reduction = {.kind = kind}});
                if (rank == 1) {
                    differ(engine);
                }
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_micro_step(engine, rank, 0, micro_step);
                }
                double const rate = rank == 1 ? rate_of_rank_1 : 1.0;
                auto const report = (kind == ReductionKind::weighted_mean ? engine.step(rate, 3)
                                                                          : engine.step(rate))
                                        .report();
                if (report.has_norm) {
                    throw std::logic_error("the step inspected its gradients");
                }
            });
        };
        auto const none = nothing<Plain>;
        auto const differs = contains_text("steps and settings as hash ");
        for (auto const kind : {ReductionKind::mean, ReductionKind::weighted_mean}) {
            CHECK(outcome_of(kind, 1.0, none).rethrown == Outcome{});
            auto const rates = outcome_of(kind, 2.0, none);
            auto const factors =
                outcome_of(kind, 1.0, [](Plain& engine) { engine.set_learning_rate(0, 0.5); });
            for (std::size_t rank = 0; rank < 2; ++rank) {
                CHECK(rates.ranks[rank].type == "CollectiveMismatch");
                CHECK_THAT(rates.ranks[rank].message, differs);
                CHECK(factors.ranks[rank].type == "CollectiveMismatch");
                CHECK_THAT(factors.ranks[rank].message, differs);
            }
        }
    });
}

} // namespace zero::test::settings_agreement_test
