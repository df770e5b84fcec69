#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

// Means over tokens, whose number is known only at the end of a step and differs between ranks; and
// gradients divided before they are sent.

namespace zero::test::weighted_mean_test {

namespace {

constexpr int world = 3;

template <class Stage>
typename Stage::Options plain_descent(typename Stage::Options options) {
    options.optimizer.momentum = 0.0;
    return options;
}

/// Runs one step of plain gradient descent on one parameter. The gradient of rank r is r + 1 in
/// every element, for `weights[r]` tokens.
template <int N>
std::vector<float> after_one_step(std::vector<std::int64_t> const& weights,
                                  GradientReductionOptions const& reduction,
                                  NonFinite non_finite = NonFinite::skip) {
    return on_ranks<float>(world, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<N, Sgd>;
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<Parameter<float>> const parameters{{.name = "weight", .elements = 100}};
        Stage engine(communicator, parameters,
                     plain_descent<Stage>({.non_finite = non_finite, .reduction = reduction}));
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            auto const gradients = engine.gradients(0);
            for (float& gradient : gradients[0]) {
                gradient += static_cast<float>(rank + 1);
            }
            engine.gradients_ready(0);
        }
        engine.step(1.0, weights.empty() ? std::optional<std::int64_t>() : weights[rank]);
        auto const result = engine.acquire(0);
        return result[0][99];
    });
}

} // namespace

TEST_CASE(
    "A weighted mean divides the sum of all ranks and micro-steps by the sum of their weights") {
    in_every_stage([]<int N>() {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            GradientReductionOptions const weighted{.kind = ReductionKind::weighted_mean,
                                                    .schedule = schedule};
            // 2 * (1 + 2 + 3) = 12, over 8 + 0 + 40 tokens
            CHECK((after_one_step<N>({8, 0, 40}, weighted) == std::vector<float>(world, -0.25F)));
            // one token for each micro-step: the plain mean
            CHECK((after_one_step<N>({2, 2, 2}, weighted)
                   == after_one_step<N>({}, {.schedule = schedule})));
        }
    });
}

TEST_CASE("A mean over ranks adds the micro-steps, and so equals the mean times their number") {
    in_every_stage([]<int N>() {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            // (1 + 2 + 3) / 3 in each of two micro-steps
            CHECK((after_one_step<N>({},
                                     {.kind = ReductionKind::mean_over_ranks, .schedule = schedule})
                   == std::vector<float>(world, -4.0F)));
            CHECK((after_one_step<N>({}, {.kind = ReductionKind::mean, .schedule = schedule})
                   == std::vector<float>(world, -2.0F)));
            CHECK((after_one_step<N>({}, {.kind = ReductionKind::sum, .schedule = schedule})
                   == std::vector<float>(world, -12.0F)));
        }
    });
}

TEST_CASE(
    "A step without tokens is skipped, and is not an error even with NonFinite::throw_error") {
    in_every_stage([]<int N>() {
        for (auto const non_finite : {NonFinite::skip, NonFinite::step, NonFinite::throw_error}) {
            CHECK((after_one_step<N>({0, 0, 0}, {.kind = ReductionKind::weighted_mean}, non_finite)
                   == std::vector<float>(world, 0.0F)));
        }
    });
}

TEST_CASE(
    "A step without tokens is not a clean step for the loss scaler, but its overflow counts") {
    // Grows after two clean steps in a row; each clean step restores the hysteresis of two
    // overflows.
    using Stage = ZeroStage<2, DynamicLossScaler>;
    struct Seen {
        float scale;
        std::uint32_t clean_steps, hysteresis_left;
        bool is_skipped;
        bool operator==(Seen const&) const = default;
    };
    auto const ranks = on_ranks<std::vector<Seen>>(world, [](LoopbackCommunicator& communicator) {
        std::vector<Parameter<float>> const parameters{{.name = "weight", .elements = 100}};
        Stage engine(communicator, parameters,
                     {.loss_scaler = {.initial_scale = 64.0F,
                                      .growth_interval = 2,
                                      .hysteresis = 2,
                                      .consecutive_hysteresis = true},
                      .reduction = {.kind = ReductionKind::weighted_mean}});
        std::vector<Seen> seen;
        auto const step = [&](std::int64_t weight, float gradient) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                engine.gradients(0)[0][7] = gradient;
                engine.gradients_ready(0);
            }
            auto const report = engine.step(0.1, weight).report();
            auto const state = engine.loss_scaler_state();
            seen.push_back({report.next_loss_scale, state.clean_steps, state.hysteresis_left,
                            report.is_skipped});
        };
        float const infinite = std::numeric_limits<float>::infinity();
        step(5, 1.0F);
        step(0, 0.0F);
        step(0, 0.0F);
        step(5, infinite);
        step(0, 0.0F);
        step(0, infinite);
        step(5, 1.0F);
        step(5, 1.0F);
        return seen;
    });
    for (auto const& seen : ranks) {
        CHECK(seen
              == std::vector<Seen>{{64.0F, 1, 2, false},
                                   {64.0F, 1, 2, true}, // does not grow here,
                                   {64.0F, 1, 2, true},
                                   {64.0F, 0, 1, true},
                                   {64.0F, 0, 1, true}, // nor restores the hysteresis
                                   {32.0F, 0, 1, true},
                                   {32.0F, 1, 2, false},
                                   {64.0F, 0, 2, false}});
    }
}

TEST_CASE("A weight that is missing, negative or would be ignored is refused, and the step can "
          "continue") {
    auto const messages =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            std::vector<Parameter<float>> const parameters{{.name = "weight", .elements = 100}};
            ZeroStage<1> plain(communicator, parameters);
            ZeroStage<1> weighted(communicator, parameters,
                                  {.reduction = {.kind = ReductionKind::weighted_mean}});
            std::vector<std::string> found;
            for (auto* engine : {&plain, &weighted}) {
                engine->begin_step();
                engine->begin_micro_step();
                engine->gradients(0)[0][0] = 1.0F;
                engine->end_micro_step();
            }
            found.push_back(outcome_of([&] { plain.step(0.1, 5); }).message);
            found.push_back(outcome_of([&] { weighted.step(0.1); }).message);
            found.push_back(outcome_of([&] { weighted.step(0.1, -5); }).message);
            constexpr std::int64_t most = std::int64_t{1} << 42U;
            found.push_back(outcome_of([&] { weighted.step(0.1, most + 1); }).message);
            plain.step(0.1);
            weighted.step(0.1, most);
            found.push_back(std::to_string(plain.step_count() + weighted.step_count()));
            return found;
        })[0];
    CHECK(messages
          == std::vector<std::string>{
              "zero: step() got a weight, which would be ignored; set reduction.kind to "
              "weighted_mean.",
              "zero: step() needs the weight of this rank's gradients: reduction.kind is "
              "weighted_mean.",
              "zero: the weight of a step is -5; it must be at least 0 and at most 2^42 (rank 0).",
              "zero: the weight of a step is 4398046511105; it must be at least 0 and at most 2^42 "
              "(rank 0).",
              "2"});
}

TEST_CASE("The step compensates for any divisor of gradients before they are sent") {
    in_every_stage([]<int N>() {
        // One of them is W. Thirds of 2, 4 and 6 are rounded.
        for (float const predivide : {1.0F, 2.0F, 3.0F, 5.0F}) {
            for (float const value : after_one_step<N>({}, {.predivide = predivide})) {
                CHECK(value == Approx(-2.0F).epsilon(1e-6));
            }
        }
        CHECK((after_one_step<N>({}, {.predivide = 2.0F}) == std::vector<float>(world, -2.0F)));
    });
}

TEST_CASE("With a divisor that rounds, the stages still agree in every bit") {
    auto const train = []<int N>() {
        return on_ranks<std::vector<std::vector<float>>>(
            world, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Parameters<float16>> engine(
                    communicator, registration<float16>(toy_specs()),
                    {.reduction = {.schedule = ReductionSchedule::boundary, .predivide = 3.0F}});
                for (std::uint64_t step = 0; step < 3; ++step) {
                    (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step,
                                   2);
                }
                return full_parameters(engine);
            });
    };
    auto const expected = train.operator()<0>();
    CHECK((train.operator()<1>() == expected));
    CHECK((train.operator()<2>() == expected));
    CHECK((train.operator()<3>() == expected));
}

} // namespace zero::test::weighted_mean_test
