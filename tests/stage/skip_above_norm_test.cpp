// Steps whose gradient norm is above a limit. The oracle compares the rule, the reports and all
// bits with a straight-line reference in every stage.

#include "support/catch.hpp"
#include "support/limited_memory.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::skip_above_norm_test {

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

/// A batch of the toy model: its number, and what all of its gradients are multiplied by.
struct Batch {
    std::uint64_t number;
    float size = 1.0F;
};

struct Seen {
    std::vector<std::vector<float>> parameters;
    std::vector<bool> too_large; ///< by step
    std::uint32_t count = 0;     ///< of the last report
    std::uint64_t step_count = 0;
    float scale = 0.0F;
    std::uint32_t clean_steps = 0;
};

/// Trains with two micro-steps a batch. Its gradients do not depend on the parameters.
template <class Stage>
Seen train(auto& communicator, std::vector<Batch> const& batches,
           typename Stage::Options const& options) {
    using T = typename Stage::ParameterType;
    Stage engine(communicator, registration<T>(toy_specs()), options);
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    Seen seen;
    for (Batch const& batch : batches) {
        engine.begin_step();
        float const scale = engine.loss_scale();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_micro_step(engine, rank, batch.number, micro_step, scale * batch.size);
        }
        bool const is_weighted = options.reduction.kind == ReductionKind::weighted_mean;
        auto const report =
            is_weighted ? engine.step(0.01, 3).report() : engine.step(0.01).report();
        seen.too_large.push_back(report.is_too_large);
        seen.count = report.too_large;
        seen.step_count = report.step_count;
    }
    seen.parameters = full_parameters(engine);
    seen.scale = engine.loss_scaler_state().scale;
    if constexpr (requires { engine.loss_scaler_state().clean_steps; }) {
        seen.clean_steps = engine.loss_scaler_state().clean_steps;
    }
    return seen;
}

std::vector<Batch> const spiked{{0}, {1}, {2}, {3, 40.0F}, {4}, {5, 200.0F}, {6, 90.0F}, {7}};
std::vector<Batch> const without_spikes{{0}, {1}, {2}, {4}, {7}};
std::vector<bool> const spikes{false, false, false, true, false, true, true, false};
constexpr std::size_t window = 3; ///< of the running norm

/// Requires that the batches with spikes leave no trace. @param run trains one rank set
template <class Options, class Run>
void check_no_trace(Options options, Run const& run) {
    options.skip_above_norm = NormLimit{.factor = 3.0F, .window = window};
    std::vector<Seen> const found = run(spiked, options);
    options.skip_above_norm = NormLimit{};
    std::vector<Seen> const expected = run(without_spikes, options);
    std::vector<Seen> const ruined = run(spiked, options); // the negative control
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        CAPTURE(rank);
        CHECK(found[rank].too_large == spikes);
        CHECK(found[rank].count == 3);
        CHECK(found[rank].step_count == 5);
        CHECK(found[rank].parameters == expected[rank].parameters);
        CHECK(found[rank].scale == expected[rank].scale);
        CHECK(found[rank].clean_steps == expected[rank].clean_steps);
        CHECK(expected[rank].too_large == std::vector<bool>(5, false));
        CHECK(ruined[rank].count == 0);
        CHECK(ruined[rank].step_count == 8);
        CHECK_FALSE(ruined[rank].parameters == expected[rank].parameters);
    }
}

template <class Stage>
void check_on_ranks(int world, typename Stage::Options const& options = {}) {
    CAPTURE(Stage::stage, world);
    check_no_trace(options, [&](std::vector<Batch> const& batches, auto const& chosen) {
        return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
            return train<Stage>(communicator, batches, chosen);
        });
    });
}

} // namespace

TEST_CASE("Skipped spikes leave no trace in weights, step count and loss scale, in every stage") {
    in_every_stage([]<int N>() {
        for (int const world : {1, 2, 3}) {
            using Stage = ZeroStage<N, Parameters<bfloat16>, DynamicLossScaler>;
            check_on_ranks<Stage>(
                world, {.gradient_clipping = 0.5F,
                        .loss_scaler = {.initial_scale = 256.0F, .growth_interval = 3},
                        .groups = {{.learning_rate_factor = 1.0}, {.is_clipped = false}}});
        }
        check_on_ranks<ZeroStage<N, Sgd, StaticLossScaler>>(
            2, {.unused_parameters = UnusedParameters::leave,
                .optimizer = {.momentum = 0.9},
                .reduction = {.kind = ReductionKind::weighted_mean}});
        // Nothing but the limit asks for the norm.
        check_on_ranks<ZeroStage<N, Sgd>>(2, {.non_finite = NonFinite::step});
    });
}

TEST_CASE("Skipped spikes leave no trace with states in files, delayed updates, a tree of "
          "micro-batches, and hybrid sharding") {
    using States = To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>;
    TemporaryFolder const folder;
    auto const in_files = [&]<class Stage>(Stage const*) {
        typename Stage::Options options;
        options.offload.path = folder.path();
        options.offload.chunk_bytes = 4096;
        check_on_ranks<Stage>(2, options);
    };
    in_files(static_cast<ZeroStage<2, Parameters<bfloat16>, Offload<States>>*>(nullptr));
    in_files(
        static_cast<ZeroStage<2, Parameters<bfloat16>, Offload<States, DelayedUpdate>>*>(nullptr));
    check_on_ranks<ZeroStage<3, Parameters<bfloat16>, TreeReduction<>>>(
        2, {.reduction = {.micro_batches = 4}});
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    using Shards = ZeroStage<2, Parameters<bfloat16>, Hosts>;
    check_no_trace(Shards::Options{}, [](std::vector<Batch> const& batches, auto const& options) {
        std::vector<Seen> seen(4);
        run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
            seen[static_cast<std::size_t>(hosts.rank())] = train<Shards>(hosts, batches, options);
        });
        return seen;
    });
}

TEST_CASE("A part of a model skips the step that is too large in another part") {
    using Ranks = Groups<LoopbackCommunicator, ModelParallel>;
    using Stage = ZeroStage<1, Sgd, Ranks>;
    struct Part {
        std::vector<bool> skipped;
        std::vector<double> norms;
        float weight = 0.0F;
    };
    std::vector<Part> parts(2);
    run_ranks<Ranks>(2, test_time_out, {.model = 2}, [&](Ranks& ranks) {
        bool const is_first = ranks.model().rank() == 0;
        Stage engine(ranks, {{.name = is_first ? "a" : "b", .elements = 1}},
                     {.skip_above_norm = {.limit = 9.0F}, .optimizer = {.momentum = 0.0}});
        Part& part = parts[is_first ? 0 : 1];
        for (float const gradient : {4.0F, 40.0F, 3.0F}) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            engine.gradients(0)[0][0] = is_first ? gradient : 3.0F;
            engine.gradients_ready(0);
            engine.end_micro_step();
            auto const report = engine.step(1.0).report();
            part.skipped.push_back(report.is_skipped && report.is_too_large);
            part.norms.push_back(report.gradient_norm);
        }
        engine.for_each_full_parameter([&](auto, auto values) { part.weight = values[0]; });
    });
    for (Part const& part : parts) {
        CHECK(part.skipped == std::vector<bool>{false, true, false});
        CHECK(part.norms == std::vector<double>{5.0, std::sqrt(1609.0), std::sqrt(18.0)});
    }
    CHECK(parts[0].weight == -7.0F);
    CHECK(parts[1].weight == -6.0F);
}

namespace {

/// Makes a step of one parameter with one element on a single rank.
template <class Engine>
StepReport step(Engine& engine, float gradient) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    engine.gradients(0)[0][0] = engine.loss_scale() * gradient;
    engine.gradients_ready(0);
    engine.end_micro_step();
    return engine.step(1.0).report();
}

using One = ZeroStage<2, Sgd, DynamicLossScaler>;

One::Options one(NormLimit const& limit, NonFinite non_finite = NonFinite::skip) {
    return {.skip_above_norm = limit,
            .non_finite = non_finite,
            .loss_scaler = {.initial_scale = 256.0F, .growth_interval = 4, .hysteresis = 1},
            .optimizer = {.momentum = 0.0}};
}

/// The limit of each step, 0 where it is infinite.
std::vector<float> limits_of(NormLimit const& limit, std::vector<float> const& gradients) {
    return on_ranks<std::vector<float>>(1, [&](LoopbackCommunicator& communicator) {
        One engine(communicator, {{.name = "w", .elements = 1}}, one(limit));
        std::vector<float> limits;
        for (float const gradient : gradients) {
            float const found = step(engine, gradient).norm_limit;
            limits.push_back(found == infinite ? 0.0F : found);
        }
        return limits;
    })[0];
}

} // namespace

TEST_CASE("The running norm is a mean until the window is full, and moves by a part of each later "
          "distance") {
    // The mean of 1, 2, 3 and 6 is 3. Infinite and too large norms do not enter it.
    CHECK(limits_of({.factor = 2.0F, .window = 4},
                    {1.0F, 2.0F, infinite, 3.0F, 6.0F, 5.0F, 8.0F, infinite, 3.5F, 3.5F})
          == std::vector<float>{0, 0, 0, 0, 0, 6, 7, 0, 7, 7});
    CHECK(limits_of({.factor = 3.0F, .window = 1}, {2.0F, 5.0F, 16.0F, 1.0F, 3.5F, 0.0F, 7.0F})
          == std::vector<float>{0, 6, 15, 15, 3, 3, 0});
    // With both the smaller one counts, from the first step.
    CHECK(limits_of({.limit = 10.0F, .factor = 2.0F, .window = 2}, {11.0F, 2.0F, 4.0F, 8.0F, 6.0F})
          == std::vector<float>{10, 10, 10, 6, 6});
    CHECK(limits_of({.limit = 3e38F}, {1.0F}) == std::vector<float>{3e38F});
    CHECK(limits_of({}, {1.0F}) == std::vector<float>{0});
}

TEST_CASE("A norm that is equal to the limit is not too large, and one that is not finite is an "
          "overflow") {
    on_ranks<int>(1, [](LoopbackCommunicator& communicator) {
        One engine(communicator, {{.name = "w", .elements = 1}}, one({.limit = 4.0F}));
        CHECK_FALSE(step(engine, 4.0F).is_skipped);
        CHECK(step(engine, std::nextafter(4.0F, 5.0F)).is_too_large);
        StepReport const overflow = step(engine, infinite);
        CHECK(overflow.is_skipped);
        CHECK_FALSE(overflow.is_too_large);
        CHECK(overflow.too_large == 1);
        CHECK(overflow.skipped_in_a_row == 2);
        CHECK(overflow.next_loss_scale == 128.0F);
        // Three clean steps and a too large one: the scale grows after the fourth clean one.
        for (float const gradient : {1.0F, 2.0F, 9.0F, 3.0F}) {
            CHECK(step(engine, gradient).next_loss_scale == 128.0F);
        }
        StepReport const last = step(engine, 1.0F);
        CHECK(last.next_loss_scale == 256.0F);
        CHECK(last.too_large == 2);
        CHECK(last.step_count == 5);
        engine.for_each_full_parameter([](auto, auto values) { CHECK(values[0] == -11.0F); });
        return 0;
    });
}

TEST_CASE("A step that is taken in spite of an infinite norm does not enter the running norm") {
    on_ranks<int>(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(
            communicator, {{.name = "w", .elements = 1}},
            {.skip_above_norm = {.factor = 2.0F, .window = 1}, .non_finite = NonFinite::step});
        CHECK(step(engine, 3.0F).norm_limit == infinite);
        CHECK_FALSE(step(engine, infinite).is_skipped);
        CHECK(step(engine, 7.0F).norm_limit == 6.0F);
        return 0;
    });
}

TEST_CASE("Steps that are too large count towards skip_limit and are told apart") {
    struct Told {
        std::string text;
        Outcome outcome;
    };
    auto const told = on_ranks<Told>(2, [](LoopbackCommunicator& communicator) {
        Told own;
        ZeroStage<3, Sgd>::Options options;
        options.skip_above_norm = NormLimit{.limit = 4.0F};
        options.skip_limit = 3;
        options.on_skip = [&](std::string const& text) { own.text += text; };
        ZeroStage<3, Sgd> engine(communicator, {{.name = "w", .elements = 1}}, options);
        own.outcome = outcome_of([&] {
            for (int i = 0; i < 6; ++i) {
                (void)step(engine, 12.5F);
            }
        });
        return own;
    });
    for (Told const& rank : told) {
        CHECK_THAT(rank.text, contains_text("zero: step 1 was skipped: the gradient norm 12.5 is "
                                            "above the 4 of skip_above_norm; it changed no"));
        CHECK(rank.outcome.type == "TooManySkips");
        CHECK_THAT(rank.outcome.message,
                   contains_text("3 steps in a row were skipped, up to step 3, the last because "
                                 "the gradient norm 12.5 is above the 4 of skip_above_norm"));
    }
}

namespace {

/// Counts what the calling thread waits for.
struct CountingBackend : HostBackend {
    inline static thread_local std::size_t waits = 0;
    static void synchronise(Event const& event) {
        ++waits;
        HostBackend::synchronise(event);
    }
};

/// Returns the waits of 20 steps. @param decide ends the step
template <class Decide>
std::size_t waits_of(NormLimit const& limit, Decide const& decide) {
    using Zero = ZeroStage<2, Sgd, Loopback<CountingBackend>>;
    return on_ranks<std::size_t, Loopback<CountingBackend>>(
        2, [&](Loopback<CountingBackend>& communicator) {
            typename Zero::Options options;
            options.skip_above_norm = limit;
            Zero engine(communicator, {{.name = "w", .elements = 3}}, options);
            CountingBackend::waits = 0;
            for (int i = 0; i < 20; ++i) {
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                engine.gradients(0)[0][0] = i == 7 ? 50.0F : 1.0F;
                engine.gradients_ready(0);
                engine.end_micro_step();
                decide(engine);
            }
            return std::exchange(CountingBackend::waits, 0);
        })[0];
}

} // namespace

TEST_CASE("The limit makes no step wait, which a program that looks at the norm itself does") {
    auto const take = [](auto& engine) { (void)engine.step(0.1); };
    std::size_t const without = waits_of({}, take);
    CHECK(waits_of({.limit = 10.0F, .factor = 3.0F, .window = 4}, take) == without);
    CHECK(waits_of({},
                   [](auto& engine) {
                       (void)engine.gradient_norms();
                       (void)engine.step(0.1);
                   })
          >= without + 20);
}

TEST_CASE("Only an engine with a limit allocates memory for it, as its plan says") {
    on_ranks<int>(1, [](LoopbackCommunicator& communicator) {
        struct Bytes {
            std::size_t planned, allocated;
        };
        auto const bytes = [&](NormLimit const& limit) {
            LimitedMemory memory(std::size_t{1} << 20U);
            ZeroStage<1>::Options options;
            options.skip_above_norm = limit;
            options.memory = &memory;
            ZeroStage<1> const engine(communicator, {{.name = "w", .elements = 3}}, options);
            return Bytes{engine.memory_plan()[BufferKind::control].bytes(), memory.most()};
        };
        Bytes const off = bytes({});
        for (NormLimit const& limit :
             {NormLimit{.limit = 1.0F}, NormLimit{.factor = 2.0F, .window = 1'000'000}}) {
            CHECK(bytes(limit).planned == off.planned + sizeof(zero::detail::NormGuard));
            CHECK(bytes(limit).allocated == off.allocated + sizeof(zero::detail::NormGuard));
        }
        return 0;
    });
}

TEST_CASE("Limits that would skip nothing, everything or nothing in particular are refused") {
    on_ranks<int>(1, [](LoopbackCommunicator& communicator) {
        auto const refuse = [&](NormLimit const& limit, std::string const& text) {
            CAPTURE(text);
            Outcome const outcome = outcome_of([&] {
                ZeroStage<2> const engine(communicator, {{.name = "w", .elements = 1}},
                                          {.skip_above_norm = limit});
            });
            CHECK(outcome.type == "InvalidArgument");
            CHECK_THAT(outcome.message, contains_text(text));
        };
        constexpr float nan = std::numeric_limits<float>::quiet_NaN();
        for (float const limit : {0.0F, -1.0F, nan, infinite}) {
            refuse({.limit = limit}, "; it must be positive and finite. Leave it out to skip no");
        }
        refuse({.limit = -1.0F}, "zero: skip_above_norm.limit is -1;");
        for (float const factor : {0.0F, -3.0F, 1.0F, nan, infinite}) {
            refuse({.factor = factor}, "must be finite and above 1");
        }
        refuse({.factor = 0.5F}, "zero: skip_above_norm.factor is 0.5;");
        refuse({.factor = 2.0F, .window = 0}, "zero: skip_above_norm.window is 0");
        refuse({.limit = 2.0F, .window = 5}, "skip_above_norm.window is 5, which would be ignored");
        refuse({.window = 5}, "without skip_above_norm.factor");
        return 0;
    });
}

TEST_CASE("A program can restore the running norm itself, the same on every rank") {
    auto const engine_on = [](LoopbackCommunicator& communicator, NormLimit const& limit) {
        ZeroStage<1, Sgd>::Options options;
        options.skip_above_norm = limit;
        return ZeroStage<1, Sgd>(communicator, {{.name = "w", .elements = 3}}, options);
    };
    constexpr NormLimit limit{.factor = 2.0F, .window = 2};
    struct Own {
        RunningNorm saved;
        float first, resumed;
        Outcome unequal, negative, without;
    };
    auto const ranks = on_ranks<Own>(2, [&](LoopbackCommunicator& communicator) {
        Own own{};
        auto engine = engine_on(communicator, limit);
        for (float const gradient : {1.0F, 3.0F, 90.0F}) {
            (void)step(engine, gradient);
        }
        own.saved = TrainingState(engine).running_norm();
        own.first = step(engine, 1.0F).norm_limit;
        auto other = engine_on(communicator, limit);
        TrainingState(other).set_running_norm(own.saved);
        own.resumed = step(other, 1.0F).norm_limit;
        auto plain = engine_on(communicator, {});
        own.without = outcome_of([&] { (void)TrainingState(plain).running_norm(); });
        own.negative = outcome_of([&] { TrainingState(other).set_running_norm({.mean = -2.0}); });
        own.saved.mean += communicator.rank() == 1 ? 1.0 : 0.0;
        own.unequal = outcome_of([&] {
            TrainingState(other).set_running_norm(own.saved);
            (void)step(other, 1.0F);
        });
        return own;
    });
    for (Own const& own : ranks) {
        CHECK(own.saved.steps == 2);
        CHECK(own.saved.too_large == 1);
        CHECK(own.first == 4.0F);
        CHECK(own.resumed == own.first);
        CHECK_THAT(own.without.message, contains_text("running_norm() needs the option"));
        CHECK_THAT(own.negative.message, contains_text("the running norm -2 is not one that"));
        CHECK(own.unequal.type == "CollectiveMismatch");
    }
    CHECK(ranks[0].saved.mean == 2.0);
}

TEST_CASE("Ranks with different limits are refused") {
    for (auto const& limits : {std::pair<NormLimit, NormLimit>{{}, {.limit = 3.0F}},
                               {{.limit = 3.0F}, {.factor = 3.0F}},
                               {{.factor = 3.0F}, {.factor = 3.0F, .window = 9}}}) {
        auto const outcomes = on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
            return outcome_of([&] {
                ZeroStage<1> const engine(
                    communicator, {{.name = "w", .elements = 3}},
                    {.skip_above_norm = communicator.rank() == 0 ? limits.first : limits.second});
            });
        });
        CHECK(outcomes[0].type == "LayoutMismatch");
        CHECK_THAT(outcomes[0].message, contains_text("'skip_above_norm'"));
    }
}

TEST_CASE("A description names the limit of the norm") {
    on_ranks<int>(1, [](LoopbackCommunicator& communicator) {
        auto const text = [&](NormLimit const& limit) {
            return describe(ZeroStage<2>(communicator, {{.name = "w", .elements = 3}},
                                         {.skip_above_norm = limit}));
        };
        CHECK(text({}).find("skipped") == std::string::npos);
        CHECK_THAT(text({.limit = 2.5F}), contains_text(", steps skipped above the norm 2.5"));
        CHECK_THAT(text({.factor = 3.0F}),
                   contains_text(", steps skipped above 3 times the running norm of 128"));
        CHECK_THAT(text({.limit = 2.5F, .factor = 3.0F}),
                   contains_text("above the norm 2.5 or 3 times the running norm of 128"));
        return 0;
    });
}

} // namespace zero::test::skip_above_norm_test
