#include "norm_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <zero/comm/recording.hpp>
#include <zero/core/memory_resource.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

// The count of zero gradients and the norms of groups in a report, compared with values worked out
// by hand and with `gradient_norms`.

namespace zero::test::report_figures_test {

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr double no_number = std::numeric_limits<double>::infinity();
constexpr ReportOptions all{.zero_gradients = true, .group_norms = true};

/// Two groups, with a parameter of two units, a frozen one and an empty one.
std::vector<ParameterSpec> specs() {
    return {{"a", 2, {0}, 0, true},
            {"tied", 1, {0, 1}, 1, true},
            {"frozen", 3, {1}, 1, false},
            {"empty", 0, {1}, 0, true},
            {"b", 4, {1}, 0, true}};
}

Values const plain{{3, -4}, {6}, {0, 0, 0}, {}, {0, 1, -0.0F, 2}}; // 'tied' adds up to 12

struct Seen {
    bool is_skipped;
    double norm;
    std::int64_t zeros;
    std::vector<double> groups;
    friend bool operator==(Seen const&, Seen const&) = default;
};

Seen seen(StepReport const& report) {
    return {report.is_skipped, report.gradient_norm, report.zero_gradients, report.group_norms};
}

/// Returns the figures of one step in which rank 0 has these gradients and the others have zeros,
/// so that their sum does not depend on the number of ranks.
template <int N, class... Policies>
Seen step_with(int world, std::vector<ParameterSpec> const& model, Values const& values,
               typename ZeroStage<N, Policies...>::Options options = {}) {
    using Stage = ZeroStage<N, Policies...>;
    options.reduction.kind = ReductionKind::sum;
    auto const zeros = make_values(model, [](std::size_t, std::size_t) { return 0.0F; });
    auto const ranks = on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<typename Stage::ParameterType>(model), options);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            add_values(engine, communicator.rank() == 0 ? values : zeros);
        }
        return seen(engine.step(0.1).report());
    });
    for (Seen const& rank : ranks) {
        CHECK(rank == ranks[0]);
    }
    return ranks[0];
}

Values with(Values values, std::size_t parameter, std::size_t element, float value) {
    values[parameter][element] = value;
    return values;
}

} // namespace

TEST_CASE("A report counts the zeros of all trainable gradients and has the norm of each group, "
          "in every stage") {
    Seen const expected{false, std::sqrt(174.0), 2, {std::sqrt(30.0), 12}};
    in_every_stage([&]<int N>() {
        for (int const world : {1, 2, 3, 17}) { // 17 ranks and 7 elements
            INFO("world " << world);
            CHECK(step_with<N>(world, specs(), plain, {.report = all}) == expected);
            CHECK(step_with<N>(world, specs(), plain, {.report = all, .poison = true})
                  == expected); // padding is NaN
            CHECK(step_with<N, RoundRobinPartitioner>(world, specs(), plain, {.report = all})
                  == expected);
        }
        CHECK(step_with<N>(2, specs(), with(plain, 4, 1, 0.0F), {.report = all}).zeros == 3);
    });
}

TEST_CASE("Each figure of a report is off unless it is asked for") {
    in_every_stage([]<int N>() {
        CHECK(step_with<N>(2, specs(), plain) == Seen{false, std::sqrt(174.0), 0, {}});
        CHECK(step_with<N>(2, specs(), plain, {.report = {.zero_gradients = true}})
              == Seen{false, std::sqrt(174.0), 2, {}});
        CHECK(step_with<N>(2, specs(), plain, {.report = {.group_norms = true}})
              == Seen{false, std::sqrt(174.0), 0, {std::sqrt(30.0), 12}});
        // Nothing else would make this step inspect its gradients.
        CHECK(step_with<N>(2, specs(), plain, {.non_finite = NonFinite::step})
              == Seen{false, 0.0, 0, {}});
        CHECK(step_with<N>(2, specs(), plain, {.non_finite = NonFinite::step, .report = all})
              == Seen{false, std::sqrt(174.0), 2, {std::sqrt(30.0), 12}});
    });
}

TEST_CASE("Figures have the same bits in every stage, for every partitioner, bucketer and world "
          "size, and those of gradient_norms") {
    auto const values = make_values(toy_specs(), [](std::size_t parameter, std::size_t i) {
        float const value =
            std::ldexp(noise(7, parameter, i), static_cast<int>(20.0F * noise(8, parameter, i)));
        return i % 7 == 3 ? 0.0F : value;
    });
    std::int64_t zeros = 0;
    for (std::size_t parameter = 0; parameter < values.size(); ++parameter) {
        for (float const value : values[parameter]) {
            zeros += toy_specs()[parameter].trainable && value == 0.0F ? 1 : 0;
        }
    }
    Seen const expected = step_with<0>(1, toy_specs(), values, {.report = all});
    CHECK(expected.zeros == zeros);
    for (int const world : {1, 2, 3, 5}) {
        CHECK(step_with<0, SingleBucketer>(world, toy_specs(), values, {.report = all})
              == expected);
        CHECK(step_with<1>(world, toy_specs(), values,
                           {.report = all, .bucketer = {.bucket_bytes = 1024}})
              == expected);
        CHECK(step_with<2, RoundRobinPartitioner>(world, toy_specs(), values, {.report = all})
              == expected);
        CHECK(step_with<3>(world, toy_specs(), values, {.report = all}) == expected);
    }
    auto other = values;
    other[1][499] = std::nextafter(other[1][499], 1e9F); // the last bit of one of 1001 elements
    CHECK_FALSE(step_with<3>(2, toy_specs(), other, {.report = all}) == expected);
    auto const are_equal = on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.report = all, .reduction = {.kind = ReductionKind::sum}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        add_values(engine, values);
        engine.end_micro_step();
        auto const asked = engine.gradient_norms(NormKind::l2, NormScope::groups);
        return asked == engine.step(0.1).report().group_norms ? 1 : 0;
    });
    CHECK(are_equal == std::vector{1, 1});
}

TEST_CASE("A gradient that is not finite makes the norm of its group infinite and no other, and "
          "is no zero") {
    in_every_stage([]<int N>() {
        Values const values = with(plain, 4, 3, nan);
        Seen const expected{true, no_number, 2, {no_number, 12}};
        CHECK(step_with<N>(3, specs(), values, {.report = all}) == expected);
        CHECK(step_with<N>(3, specs(), values, {.gradient_clipping = 1.0F, .report = all})
              == expected);
        CHECK(step_with<N, StaticLossScaler>(3, specs(), values,
                                             {.report = all, .loss_scaler = {.scale = 1.0F}})
              == expected);
        CHECK(step_with<N>(3, specs(), values, {.non_finite = NonFinite::step, .report = all})
              == Seen{false, no_number, 2, {no_number, 12}});
    });
}

TEST_CASE("If all gradients are zero, every trainable element counts and the norms are zero") {
    auto const zeros = make_values(specs(), [](std::size_t, std::size_t) { return -0.0F; });
    in_every_stage([&]<int N>() {
        CHECK(step_with<N>(3, specs(), zeros, {.report = all}) == Seen{false, 0.0, 7, {0, 0}});
    });
}

TEST_CASE("Norms of groups contain neither loss scale nor clipping, and the smallest subnormal "
          "number is no zero") {
    Seen const expected{false, std::sqrt(174.0) / 256, 2, {std::sqrt(30.0) / 256, 12.0 / 256}};
    CHECK(step_with<2, StaticLossScaler>(2, specs(), plain,
                                         {.report = all, .loss_scaler = {.scale = 256.0F}})
          == expected);
    CHECK(step_with<3>(2, specs(), plain, {.gradient_clipping = 0.5F, .report = all})
          == Seen{false, std::sqrt(174.0), 2, {std::sqrt(30.0), 12}});
    CHECK(step_with<1>(2, specs(), with(plain, 4, 0, 0x1p-149F), {.report = all}).zeros == 1);
}

TEST_CASE("Figures of a model with parameters of several types add up over the types") {
    using Stage = ZeroStage<3, Parameters<bfloat16, float>, Sgd>;
    auto const ranks = on_ranks<Seen>(3, [](LoopbackCommunicator& communicator) {
        std::vector<AnyParameter> parameters;
        parameters.emplace_back(
            Parameter<bfloat16>{.name = "half", .elements = 5, .units = {0}, .group = 0});
        parameters.emplace_back(
            Parameter<float>{.name = "single", .elements = 3, .units = {0}, .group = 0});
        parameters.emplace_back(
            Parameter<float>{.name = "other", .elements = 2, .units = {1}, .group = 2});
        Stage engine(communicator, parameters,
                     {.report = all, .reduction = {.kind = ReductionKind::sum}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = 2; unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            auto const gradients = engine.gradients(unit);
            if (communicator.rank() == 1) {
                if (unit == 0) {
                    gradients.template get<bfloat16>(0)[4] = from_float<bfloat16>(2.0F);
                    gradients.template get<float>(1)[0] = 4.0F;
                } else {
                    gradients.template get<float>(2)[1] = -3.0F;
                }
            }
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
        return seen(engine.step(0.1).report());
    });
    // No parameter is in group 1.
    Seen const expected{false, std::sqrt(29.0), 7, {std::sqrt(20.0), 0, 3}};
    CHECK(ranks == std::vector<Seen>(3, expected));
}

TEST_CASE("A step whose weights add up to 0 has the count of its gradients and norms of zero") {
    auto const ranks = on_ranks<Seen>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(specs()),
                            {.report = all, .reduction = {.kind = ReductionKind::weighted_mean}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        add_values(engine, plain);
        engine.end_micro_step();
        return seen(engine.step(0.1, 0).report());
    });
    CHECK(ranks == std::vector<Seen>(2, {true, 0.0, 2, {0, 0}}));
}

TEST_CASE("A report keeps its figures during 15 further steps, and the last report has those of "
          "the last step") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(specs()), {.report = all});
        CHECK(engine.last_report().group_norms.empty());
        std::vector<decltype(engine.step(0.1))> tickets;
        for (int step = 0; step < 17; ++step) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            add_values(engine, with(plain, 1, 0, static_cast<float>(step)));
            engine.end_micro_step();
            tickets.push_back(engine.step(0.1));
        }
        CHECK_THROWS_AS(tickets[0].report(), OutOfOrder);
        for (std::size_t step = 1; step < 17; ++step) {
            CHECK(seen(tickets[step].report()).groups
                  == std::vector{std::sqrt(30.0), 2.0 * static_cast<double>(step)});
            CHECK(tickets[step].report().zero_gradients == 2);
        }
        CHECK(engine.last_report().group_norms == std::vector{std::sqrt(30.0), 32.0});
        CHECK(engine.last_report().zero_gradients == 2);
    });
}

TEST_CASE("Figures need no further collective, change no bit of a step, and the memory plan has "
          "their bytes") {
    struct Run {
        std::uint64_t calls;
        std::uint64_t integers;
        std::uint64_t other_calls;
        std::vector<float> end;
        bool is_planned; ///< the bytes of the control memory
    };
    auto const run = [](ReportOptions report) {
        return on_ranks<Run>(2, [&](LoopbackCommunicator& inner) {
            using Recorder = Recording<LoopbackCommunicator>;
            using Stage = ZeroStage<2, Recorder>;
            Recorder communicator(inner);
            HostMemoryResource memory;
            Stage engine(communicator, registration<float>(toy_specs()),
                         {.gradient_clipping = 0.1F, .report = report, .memory = &memory});
            Run result{};
            result.is_planned = engine.memory_plan()[BufferKind::control].bytes()
                                == memory.allocated_bytes(BufferKind::control);
            communicator.reset_recorded();
            for (std::uint64_t step = 0; step < 3; ++step) {
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                run_micro_step(engine, static_cast<std::uint64_t>(inner.rank()), step, 0);
                engine.end_micro_step();
                (void)engine.step(0.1).report();
            }
            auto const& recorded = communicator.recorded();
            result.calls = recorded[CollectiveKind::integers].calls;
            result.integers = recorded[CollectiveKind::integers].elements;
            result.other_calls = recorded[CollectiveKind::reduce_scatter].calls
                                 + recorded[CollectiveKind::all_gather].calls;
            engine.for_each_full_parameter([&](std::size_t, auto values) {
                result.end.insert(result.end.end(), values.begin(), values.end());
            });
            return result;
        })[0];
    };
    Run const off = run({});
    Run const counted = run({.zero_gradients = true});
    Run const on = run(all);
    CHECK((off.is_planned && counted.is_planned && on.is_planned));
    CHECK(off.calls == 3); // one for each step
    CHECK(counted.calls == off.calls);
    CHECK(on.calls == off.calls);
    CHECK(on.other_calls == off.other_calls);
    CHECK(off.integers == 3 * 24U);
    CHECK(counted.integers == off.integers + 3 * 1);
    CHECK(on.integers == off.integers + 3 * (1 + 2 * 23));
    CHECK(on.end == off.end);
}

TEST_CASE("Ranks that ask for different figures get a LayoutMismatch that names the option") {
    for (ReportOptions const other :
         {ReportOptions{.zero_gradients = true}, ReportOptions{.group_norms = true}}) {
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
            ZeroStage<2> engine(communicator, registration<float>(specs()),
                                {.report = communicator.rank() == 0 ? other : ReportOptions{}});
        });
        for (Outcome const& outcome : outcomes.ranks) {
            CHECK(outcome.type == "LayoutMismatch");
            CHECK_THAT(outcome.message, contains_text("different options or policies: 'report';"));
        }
    }
}

} // namespace zero::test::report_figures_test
