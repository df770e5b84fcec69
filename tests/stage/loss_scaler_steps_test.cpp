#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

#include <limits>
#include <ostream>
#include <string>
#include <vector>

// The loss scale of an engine, step by step, when one rank of three overflows.

namespace zero::test::loss_scaler_steps_test {

namespace {

constexpr int world = 3;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// One step, as reported.
struct Row {
    char event = '.'; ///< '.' clean, 'i' infinity on rank 1, 'n' NaN on rank 1
    bool is_skipped = false;
    std::uint64_t step_count = 0;
    float scale = 0; ///< loss scale of the step
    float next_scale = 0;
    std::int64_t bad_elements = 0;

    friend bool operator==(Row const&, Row const&) = default;
    friend std::ostream& operator<<(std::ostream& out, Row const& row) {
        return out << '{' << row.event << ' ' << row.is_skipped << ' ' << row.step_count << ' '
                   << row.scale << ' ' << row.next_scale << ' ' << row.bad_elements << '}';
    }
};
using Rows = std::vector<Row>;

/// Runs a step whose gradients are noise times the loss scale. Unless `event` is '.', rank 1 has
/// one non-finite element in 'second.weight'.
template <class Engine>
auto step_with(Engine& engine, int rank, std::uint64_t step, char event) {
    engine.begin_step();
    float const scale = engine.loss_scale();
    for (auto const micro_step : engine.micro_steps(2)) {
        if (micro_step == 1 && rank == 1 && event != '.') {
            std::vector<float> bad(129, 0.0F);
            bad[77] = event == 'i' ? -infinity : std::numeric_limits<float>::quiet_NaN();
            engine.hand_over(2, 3, bad);
        }
        run_micro_step(engine, static_cast<std::uint64_t>(rank), step, micro_step, scale);
    }
    return engine.step(0.01);
}

/// The observations of one rank: its reports, the first non-finite index of each, and whether
/// skipped steps changed no bit and all others changed some.
struct Seen {
    Rows rows;
    std::vector<std::int64_t> first_bad;
    bool skips_change_nothing = true;
    bool clean_steps_change = true;
    std::vector<std::uint32_t> end;
};

template <int N, class... Policies>
std::vector<Seen>
play(std::string const& events,
     typename ZeroStage<N, GradientReduction<float>, Policies...>::Options options = {}) {
    options.extra_leases = 1; // the non-finite gradient comes out of order
    return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<N, GradientReduction<float>, Policies...>;
        Stage engine(communicator, registration<typename Stage::ParameterType, float>(toy_specs()),
                     options);
        Seen seen;
        auto before = snapshot(engine);
        for (std::size_t step = 0; step < events.size(); ++step) {
            auto const report = step_with(engine, communicator.rank(), step, events[step]).report();
            auto after = snapshot(engine);
            seen.rows.push_back({events[step], report.is_skipped, report.step_count,
                                 report.loss_scale, report.next_loss_scale,
                                 report.non_finite_count});
            seen.first_bad.push_back(report.first_non_finite);
            (report.is_skipped ? seen.skips_change_nothing : seen.clean_steps_change) &=
                report.is_skipped == (before == after);
            before = std::move(after);
        }
        seen.end = before;
        return seen;
    });
}

void check_table(std::vector<Seen> const& ranks, Rows const& expected) {
    for (Seen const& seen : ranks) {
        CHECK(seen.rows == expected);
        CHECK(seen.skips_change_nothing);
        CHECK(seen.clean_steps_change);
        CHECK(seen.first_bad == ranks[0].first_bad);
    }
}

using Half = Parameters<bfloat16>;

} // namespace

TEMPLATE_TEST_CASE_SIG("An overflow on one rank skips the step on all ranks, and no bit changes",
                       "", ((int N), N), 0, 1, 2, 3) {
    auto const ranks = play<N, Half, DynamicLossScaler>(
        ".i.n.ii...",
        {.loss_scaler = {.initial_scale = 1024.0F, .growth_interval = 3, .hysteresis = 1}});
    check_table(ranks, {{'.', false, 1, 1024, 1024, 0},
                        {'i', true, 1, 1024, 512, 1},
                        {'.', false, 2, 512, 512, 0},
                        {'n', true, 2, 512, 256, 1},
                        {'.', false, 3, 256, 256, 0},
                        {'i', true, 3, 256, 128, 1},
                        {'i', true, 3, 128, 64, 1},
                        {'.', false, 4, 64, 64, 0},
                        {'.', false, 5, 64, 64, 0},
                        {'.', false, 6, 64, 128, 0}});
    // 'second.weight' follows 300 + 500 + 7 elements.
    CHECK(ranks[0].first_bad[1] == 807 + 77);
    CHECK(ranks[0].first_bad[0] == -1);
}

TEST_CASE("A step with zero gradients has the norm 0 and is not skipped") {
    in_every_stage([]<int N>() {
        auto const reports = on_ranks<StepReport>(2, [](LoopbackCommunicator& communicator) {
            ZeroStage<N, DynamicLossScaler> engine(communicator, registration<float>(toy_specs()),
                                                   {.gradient_clipping = 0.5F});
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    auto const gradients = engine.gradients(unit); // zeroed, nothing is added
                    static_cast<void>(gradients[engine.layout().unit_parameters(unit).front()]);
                    engine.gradients_ready(unit);
                }
            }
            return engine.step(0.01).report();
        });
        for (StepReport const& report : reports) {
            CHECK(report.has_norm);
            CHECK(report.gradient_norm == 0.0);
            CHECK(report.clip_coefficient == 1.0F);
            CHECK_FALSE(report.is_skipped);
            CHECK(report.step_count == 1);
        }
    });
}

TEST_CASE("An overflow on a rank that owns nothing skips the step on all ranks") {
    struct Result {
        std::size_t owned = 0;
        StepReport report;
        bool is_unchanged = false;
    };
    in_every_stage([]<int N>() {
        auto const results = on_ranks<Result>(world, [](LoopbackCommunicator& communicator) {
            auto parameters =
                registration<float>({{"small", 10}}); // one bucket, all of it the shard of one rank
            ZeroStage<N, RoundRobinPartitioner, DynamicLossScaler> engine(
                communicator, parameters,
                {.loss_scaler = {.initial_scale = 1024.0F, .hysteresis = 1}});
            auto const before = snapshot(engine);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                engine.gradients(0)[0][7] = communicator.rank() == 2 ? infinity : 1.0F;
                engine.gradients_ready(0);
            }
            Result result;
            result.report = engine.step(0.01).report();
            result.is_unchanged = snapshot(engine) == before;
            engine.for_each_owned_slice(
                [&](auto const& slice) { result.owned += slice.values.size(); });
            return result;
        });
        CHECK(results[0].owned == 10);
        CHECK(results[2].owned == (N == 0 ? 10 : 0));
        for (Result const& result : results) {
            CHECK(result.report.is_skipped);
            CHECK(result.report.non_finite_count == 1);
            CHECK(result.report.first_non_finite == 7);
            CHECK(result.report.step_count == 0);
            CHECK(result.report.next_loss_scale == 512.0F);
            CHECK(result.is_unchanged);
        }
    });
}

TEST_CASE("With a hysteresis of 2 the first overflow keeps the scale unchanged") {
    DynamicLossScalerOptions options{
        .initial_scale = 1024.0F, .growth_interval = 2, .hysteresis = 2};
    check_table(play<2, Half, DynamicLossScaler>("i.i..ii", {.loss_scaler = options}),
                {{'i', true, 0, 1024, 1024, 1},
                 {'.', false, 1, 1024, 1024, 0},
                 {'i', true, 1, 1024, 512, 1},
                 {'.', false, 2, 512, 512, 0},
                 {'.', false, 3, 512, 1024, 0},
                 {'i', true, 3, 1024, 1024, 1},
                 {'i', true, 3, 1024, 512, 1}});
    options.consecutive_hysteresis = true;
    check_table(play<2, Half, DynamicLossScaler>("i.ii", {.loss_scaler = options}),
                {{'i', true, 0, 1024, 1024, 1},
                 {'.', false, 1, 1024, 1024, 0},
                 {'i', true, 1, 1024, 1024, 1},
                 {'i', true, 1, 1024, 512, 1}});
}

TEST_CASE("At its minimum the scale holds, and at its maximum it stays") {
    check_table(play<3, Half, DynamicLossScaler>("iii..", {.loss_scaler = {.initial_scale = 4,
                                                                           .growth_interval = 1,
                                                                           .hysteresis = 1,
                                                                           .minimum = 2,
                                                                           .maximum = 4}}),
                {{'i', true, 0, 4, 2, 1},
                 {'i', true, 0, 2, 2, 1},
                 {'i', true, 0, 2, 2, 1},
                 {'.', false, 1, 2, 4, 0},
                 {'.', false, 2, 4, 4, 0}});
}

TEST_CASE("A step after which the scale grows is unscaled with the captured scale") {
    // Powers of two scale float gradients exactly, so the parameters have the bits of a run without
    // a scaler.
    auto const scaled = play<2, DynamicLossScaler>(
        "....", {.loss_scaler = {.initial_scale = 1024.0F, .growth_interval = 1, .hysteresis = 1}});
    check_table(scaled, {{'.', false, 1, 1024, 2048, 0},
                         {'.', false, 2, 2048, 4096, 0},
                         {'.', false, 3, 4096, 8192, 0},
                         {'.', false, 4, 8192, 16384, 0}});
    auto const unscaled = play<2, NoLossScaler>("....");
    auto const fixed = play<2, StaticLossScaler>("....", {.loss_scaler = {.scale = 256.0F}});
    auto const other = play<2, NoLossScaler>("...");
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(scaled[rank].end == unscaled[rank].end);
        CHECK(fixed[rank].end == unscaled[rank].end);
        CHECK(other[rank].end != unscaled[rank].end);
    }
}

TEST_CASE("A static scale never changes") {
    check_table(
        play<1, Half, StaticLossScaler>("in.", {.loss_scaler = {.scale = 128.0F}}),
        {{'i', true, 0, 128, 128, 1}, {'n', true, 0, 128, 128, 1}, {'.', false, 1, 128, 128, 0}});
}

TEST_CASE("Without a scaler non-finite gradients skip the step by default, and are used with "
          "NonFinite::step") {
    check_table(play<3, Half>("i.n", {}),
                {{'i', true, 0, 1, 1, 1}, {'.', false, 1, 1, 1, 0}, {'n', true, 1, 1, 1, 1}});
    auto const ranks = play<2>("n", {.non_finite = NonFinite::step});
    for (Seen const& seen : ranks) {
        CHECK(seen.rows == Rows{{'n', false, 1, 1, 1, 0}}); // not inspected
        CHECK(seen.clean_steps_change);
    }
}

TEST_CASE("NonFinite::throw_error throws on every rank, names the parameter and changes nothing") {
    struct Result {
        Outcome outcome;
        bool is_unchanged = false;
        std::uint64_t next_step_count = 0;
    };
    auto const results = on_ranks<Result>(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.non_finite = NonFinite::throw_error});
        auto const before = snapshot(engine);
        Result result;
        result.outcome = outcome_of([&] { (void)step_with(engine, communicator.rank(), 0, 'n'); });
        result.is_unchanged = snapshot(engine) == before;
        result.next_step_count = step_with(engine, communicator.rank(), 1, '.').report().step_count;
        return result;
    });
    for (Result const& result : results) {
        CHECK(result.outcome.type == "NonFiniteGradients");
        CHECK_THAT(result.outcome.message,
                   contains_text("1 gradient is infinite or NaN, the first is element 77 of "
                                 "parameter 'second.weight'"));
        CHECK(result.is_unchanged);
        CHECK(result.next_step_count == 1);
    }
}

TEST_CASE("An overflow at the minimum scale throws or calls back on every rank if so configured, "
          "and only there") {
    struct Result {
        std::vector<Outcome> outcomes;
        int calls = 0;
        bool is_unchanged = false;
    };
    auto const run = [](AtMinimumScale at_minimum) {
        return on_ranks<Result>(world, [at_minimum](LoopbackCommunicator& communicator) {
            Result result;
            DynamicLossScalerOptions scaler{
                .initial_scale = 2, .hysteresis = 1, .at_minimum = at_minimum};
            if (at_minimum == AtMinimumScale::call_back) {
                scaler.on_minimum = [](void* calls) { ++*static_cast<int*>(calls); };
                scaler.context = &result.calls;
            }
            ZeroStage<1, DynamicLossScaler> engine(communicator, registration<float>(toy_specs()),
                                                   {.loss_scaler = scaler});
            auto const before = snapshot(engine);
            for (char const event : {'i', 'i', '.', 'n'}) {
                result.is_unchanged = snapshot(engine) == before || engine.step_count() == 1;
                result.outcomes.push_back(
                    outcome_of([&] { (void)step_with(engine, communicator.rank(), 0, event); }));
            }
            return result;
        });
    };
    for (Result const& result : run(AtMinimumScale::throw_error)) {
        CHECK(result.outcomes[0] == Outcome{});
        CHECK(result.outcomes[1].type == "LossScaleExhausted");
        CHECK_THAT(result.outcomes[1].message,
                   contains_text("overflowed at the smallest loss scale 1, first")
                       && contains_text("element 77 of parameter 'second.weight'"));
        CHECK(result.outcomes[2] == Outcome{});
        CHECK(result.outcomes[3].type == "LossScaleExhausted");
        CHECK(result.is_unchanged);
    }
    for (Result const& result : run(AtMinimumScale::call_back)) {
        CHECK(result.outcomes == std::vector<Outcome>(4));
        CHECK(result.calls == 2);
    }
    for (Result const& result : run(AtMinimumScale::hold)) {
        CHECK(result.outcomes == std::vector<Outcome>(4));
    }
}

} // namespace zero::test::loss_scaler_steps_test
