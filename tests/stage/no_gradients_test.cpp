#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/recording.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace zero::test::no_gradients_test {

namespace {

constexpr std::size_t elements = 9;

/// The outcome of a step on one rank.
struct Seen {
    Outcome outcome;
    bool has_changed = false; ///< a parameter after the step
    bool can_train = false;   ///< an ordinary step after it changed a parameter

    bool operator==(Seen const&) const = default;
};

template <class Engine>
bool trains(Engine& engine) {
    auto const before = full_parameters(engine);
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    engine.gradients(0)[0][0] = 1.0F;
    engine.gradients_ready(0);
    engine.end_micro_step();
    (void)engine.step(0.1).report();
    return full_parameters(engine) != before;
}

/// Makes a step whose gradients `backward(engine, rank)` writes and reports, on two ranks.
template <class Stage, class Backward>
std::vector<Seen> step_with(Backward const& backward, typename Stage::Options const& options = {}) {
    return on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, {{.name = "w", .elements = elements}}, options);
        auto const before = full_parameters(engine);
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        backward(engine, communicator.rank());
        engine.end_micro_step();
        Seen seen;
        seen.outcome = outcome_of([&] { (void)engine.step(0.1); });
        seen.has_changed = full_parameters(engine) != before;
        seen.can_train = trains(engine);
        return seen;
    });
}

void check_refused(std::vector<Seen> const& ranks, std::string const& text) {
    for (Seen const& seen : ranks) {
        CHECK(seen.outcome.type == "NoGradients");
        CHECK_THAT(seen.outcome.message, contains_text(text));
        CHECK_FALSE(seen.has_changed);
        CHECK(seen.can_train);
    }
}

void check_trained(std::vector<Seen> const& ranks) {
    for (Seen const& seen : ranks) {
        CHECK(seen.outcome.type == "returned");
        CHECK(seen.has_changed);
        CHECK(seen.can_train);
    }
}

constexpr char const* unreported =
    "no rank reported a gradient in this step, which changed nothing";

} // namespace

TEST_CASE("A step without any gradient throws on every rank and changes nothing, in every stage") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Sgd>;
        check_refused(step_with<Stage>([](Stage&, int) {}), unreported);
        check_refused(step_with<Stage>([](Stage& engine, int) { engine.gradients_ready(0); }),
                      unreported);
        check_refused(step_with<Stage>([](Stage&, int) {}, {.non_finite = NonFinite::step}),
                      unreported);
        // The address of the memory was not taken, so it was not written.
        check_refused(step_with<Stage>([](Stage& engine, int) {
                          engine.begin_gradients(0, GradientWrites::overwritten);
                          engine.gradients_ready(0);
                      }),
                      unreported);
    });
}

TEST_CASE("A rank without data reports nothing as long as another rank does") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Sgd>;
        for (int const reporter : {0, 1}) {
            check_trained(step_with<Stage>([&](Stage& engine, int rank) {
                if (rank == reporter) {
                    engine.gradients(0)[0][0] = 1.0F;
                }
                engine.gradients_ready(0);
            }));
        }
        check_trained(step_with<Stage>([](Stage& engine, int rank) {
            if (rank == 1) {
                std::vector<float> const gradient(elements, 1.0F);
                engine.hand_over(0, 0, gradient).synchronise();
            }
        }));
    });
}

TEST_CASE("Gradients that are not registered or not reported are found in a caller's block") {
    struct Way {
        bool is_registered;
        bool is_reported;
        bool is_late; ///< `gradients` after the backward pass
        GradientWrites writes = GradientWrites::added;
        bool is_zero = false;  ///< the backward pass gives zeros
        bool is_early = false; ///< `gradients_ready` before it, without `begin_gradients`
    };
    auto const train = [](Way const& way) {
        return on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
            std::vector<float> block(elements, 1.0F);
            std::vector<float> gradient(elements);
            using Stage = ZeroStage<1, Sgd>;
            Stage::Options options{.storage = Storage::adopted, .adopted_block = block};
            host::InlineQueue queue;
            if (way.is_early) { // then the old gradients are read before the new ones are written
                options.communication_queue = &queue;
            }
            Stage engine(communicator,
                         {{.name = "w",
                           .data = block.data(),
                           .elements = elements,
                           .gradient = way.is_registered ? gradient.data() : nullptr}},
                         options);
            auto const step = [&](float value) {
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                if (way.is_early) {
                    engine.gradients_ready(0);
                } else if (!way.is_late && way.is_reported) {
                    engine.begin_gradients(0, way.writes);
                }
                std::fill(gradient.begin(), gradient.end(), value);
                if (way.is_late) {
                    engine.begin_gradients(0, way.writes);
                }
                if (way.is_reported) {
                    engine.gradients_ready(0);
                }
                engine.end_micro_step();
                return engine.step(0.1).report();
            };
            Seen seen;
            seen.outcome = outcome_of([&] {
                (void)step(way.is_zero ? 0.0F : 1.0F);
                engine.begin_step(); // looks back at the first step
                engine.cancel_step();
            });
            seen.has_changed = block[0] != 1.0F;
            seen.can_train = true;
            if (way.is_registered && way.is_reported && !way.is_late) {
                StepReport const later = step(0.0F); // in later steps zeros are taken as they are
                seen.can_train = later.has_gradients && !later.is_skipped;
            }
            return seen;
        });
    };
    check_refused(train({.is_registered = false, .is_reported = true, .is_late = false}),
                  "register the memory that the backward pass writes as 'gradient'");
    check_refused(train({.is_registered = true, .is_reported = false, .is_late = false}),
                  "then call gradients_ready(unit) after the backward pass");
    check_refused(train({.is_registered = true, .is_reported = false, .is_late = true}),
                  "gradients(unit) cleared it");
    check_refused(train({.is_registered = true, .is_reported = true, .is_late = true}),
                  "gradients(unit) cleared it after the backward pass: call it before");
    check_refused(
        train({.is_registered = true, .is_reported = true, .is_late = false, .is_early = true}),
        "Or gradients_ready(unit) came before the backward pass: call it after");
    check_trained(train({.is_registered = true, .is_reported = true, .is_late = false}));
    check_trained(train({.is_registered = true,
                         .is_reported = true,
                         .is_late = false,
                         .writes = GradientWrites::overwritten}));
    auto const zeros = train({.is_registered = true,
                              .is_reported = true,
                              .is_late = false,
                              .writes = GradientWrites::overwritten,
                              .is_zero = true});
    CHECK(zeros[0].outcome.type == "returned"); // zeros that the model wrote are gradients
    CHECK(zeros[0].can_train);
}

TEST_CASE("Stage 3 refuses registered gradients of a unit that was not acquired, and goes on") {
    auto const ranks = on_ranks<std::vector<Outcome>>(2, [](LoopbackCommunicator& communicator) {
        std::vector<float> gradient(elements, 1.0F);
        ZeroStage<3, Sgd> engine(communicator,
                                 {{.name = "w", .elements = elements, .gradient = gradient.data()},
                                  {.name = "head", .elements = elements, .units = {1}}});
        std::vector<Outcome> seen;
        auto const step = [&](bool is_before) { // the passes come before the micro-step
            engine.begin_step();
            if (is_before) {
                (void)engine.acquire(0);
            }
            engine.begin_micro_step(MicroStep::last);
            seen.push_back(outcome_of([&] { engine.gradients_ready(0); }));
            engine.gradients_ready(1); // not registered
            engine.skip(0);
            seen.push_back(outcome_of([&] { engine.gradients_ready(0); }));
            engine.end_micro_step();
            (void)engine.step(0.1).report();
        };
        step(false);
        step(true);
        step(false); // acquisitions of earlier micro-steps do not count
        return seen;
    });
    for (std::vector<Outcome> const& seen : ranks) {
        for (std::size_t call = 0; call < 6; ++call) {
            bool const is_refused = call == 0 || call == 4;
            CHECK(seen[call].type == (is_refused ? "OutOfOrder" : "returned"));
        }
        CHECK_THAT(
            seen[0].message,
            contains_text(
                "zero: gradients_ready() of unit 0 without acquire() since the last micro-step, so "
                "no backward pass has written the registered gradient of 'w' (rank"));
    }
}

TEST_CASE("A model without trainable parameters makes steps without gradients") {
    auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(communicator,
                                 {{.name = "w", .elements = elements, .trainable = false}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        engine.end_micro_step();
        return outcome_of([&] { (void)engine.step(0.1); });
    });
    CHECK(outcomes == std::vector<Outcome>(2));
}

TEST_CASE("A step without tokens is skipped, also if no rank reported a gradient") {
    auto const reports = on_ranks<StepReport>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(communicator, {{.name = "w", .elements = elements}},
                                 {.reduction = {.kind = ReductionKind::weighted_mean}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        engine.end_micro_step();
        return engine.step(0.1, 0).report();
    });
    CHECK(reports[0].is_skipped);
    CHECK(reports[0].has_gradients);
}

TEST_CASE("A step without gradients is neither clean nor an overflow for the loss scaler") {
    auto const states =
        on_ranks<std::vector<std::size_t>>(2, [](LoopbackCommunicator& communicator) {
            using Stage = ZeroStage<1, Sgd, DynamicLossScaler>;
            Stage engine(communicator, {{.name = "w", .elements = elements}});
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            engine.end_micro_step();
            bool const throws = outcome_of([&] { (void)engine.step(0.1); }).type == "NoGradients";
            auto const after = engine.loss_scaler_state();
            bool const is_same = after.scale == Stage::Options{}.loss_scaler.initial_scale
                                 && engine.step_count() == 0;
            (void)trains(engine);
            return std::vector<std::size_t>{throws, is_same, engine.step_count()};
        });
    CHECK(states[0] == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE("To find out whether any rank has gradients takes no collective of its own") {
    using Recorded = Recording<LoopbackCommunicator>;
    auto const counts = on_ranks<std::vector<std::uint64_t>>(2, [](LoopbackCommunicator& inner) {
        std::vector<std::uint64_t> found;
        Recorded communicator(inner);
        ZeroStage<2, Recorded, Sgd> engine(communicator, {{.name = "w", .elements = elements}});
        for (bool const reports : {true, inner.rank() == 0}) {
            communicator.reset_recorded();
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            if (reports) {
                engine.gradients(0)[0][0] = 1.0F;
            }
            engine.end_micro_step();
            (void)engine.step(0.1).report();
            found.push_back(communicator.recorded()[CollectiveKind::integers].calls);
        }
        return found;
    });
    CHECK(counts == std::vector<std::vector<std::uint64_t>>(2, {1, 1}));
}

TEST_CASE("A forgotten registration of a gradient is an error where its unit has registered ones, "
          "in every stage") {
    auto const outcome = []<int N>(bool is_asked, bool is_handed_over, bool is_sibling_registered) {
        return on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
            std::vector<float> gradient(elements);
            ZeroStage<N, Sgd> engine(
                communicator,
                std::vector<Parameter<float>>{
                    {.name = "w",
                     .elements = elements,
                     .gradient = is_sibling_registered ? gradient.data() : nullptr},
                    {.name = "b", .elements = elements},
                    {.name = "empty"},
                    {.name = "frozen", .elements = 2, .trainable = false}},
                {.unused_parameters = UnusedParameters::error});
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            auto weights = engine.acquire(0);
            {
                auto const gradients = engine.gradients(0);
                if (is_asked) {
                    gradients[1][0] = 1.0F;
                }
            }
            if (is_handed_over) {
                std::vector<float> const transient(elements, 1.0F);
                engine.hand_over(0, 1, transient).synchronise();
            }
            engine.gradients_ready(0);
            weights.release();
            Outcome const seen = outcome_of([&] { engine.end_micro_step(); });
            engine.cancel_step();
            return seen;
        });
    };
    in_every_stage([&]<int N>() {
        for (Outcome const& seen : outcome.template operator()<N>(false, false, true)) {
            CHECK(seen.type == "UnusedParameter");
            CHECK_THAT(seen.message,
                       contains_text("parameter 'b' got no gradient")
                           && contains_text("its gradient lies in the engine's memory while that "
                                            "of 'w' is registered: register its 'gradient' as "
                                            "well, or write it to gradients(0)[1]"));
        }
        for (auto const& ranks : {outcome.template operator()<N>(true, false, true),
                                  outcome.template operator()<N>(false, true, true),
                                  outcome.template operator()<N>(false, false, false)}) {
            CHECK(ranks[0].type == "returned");
            CHECK(ranks[1].type == "returned");
        }
    });
}

} // namespace zero::test::no_gradients_test
