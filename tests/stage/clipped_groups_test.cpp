#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

// A group that is left out of clipping is neither counted in the norm nor scaled.

namespace zero::test::clipped_groups_test {

namespace {

/// The weights and the report of rank 0 after a step.
struct Seen {
    std::vector<float> weights;
    StepReport report;
};

/// Makes a step of 'loud' in group 0 and 'quiet' in group 1. Each rank writes the same gradients.
template <class Stage>
Seen step(int world, typename Stage::Options const& options, float loud, float quiet,
          bool is_callers_update = false) {
    return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator,
                     {{.name = "loud", .elements = 80, .group = 0, .rows = 8},
                      {.name = "quiet", .elements = 96, .group = 1, .rows = 8}},
                     options);
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        auto const gradients = engine.gradients(0);
        for (std::size_t i = 0; i < 80; ++i) {
            gradients[0][i] = i % 3 == 0 ? loud : -loud;
        }
        for (std::size_t i = 0; i < 96; ++i) {
            gradients[1][i] = i % 5 == 0 ? quiet : -quiet;
        }
        engine.gradients_ready(0);
        engine.end_micro_step();
        Seen seen;
        if (is_callers_update) {
            seen.report = engine
                              .step(1.0,
                                    [](auto const& slice) {
                                        for (std::size_t i = 0; i < slice.gradient.size(); ++i) {
                                            slice.weights()[i] -= slice.gradient[i] * slice.factor;
                                        }
                                    })
                              .report();
        } else {
            seen.report = engine.step(1.0).report();
        }
        engine.for_each_full_parameter([&](std::size_t, auto values) {
            seen.weights.insert(seen.weights.end(), values.begin(), values.end());
        });
        return seen;
    })[0];
}

template <class Options>
Options options_of(bool is_quiet_clipped, bool is_clipping = true) {
    Options options;
    if (is_clipping) {
        options.gradient_clipping = 1.0F;
    }
    options.groups.resize(2);
    options.groups[1].is_clipped = is_quiet_clipped;
    if constexpr (requires { options.groups[0].optimizer.nesterov; }) {
        options.groups[0].optimizer.momentum = 0.0;
        options.groups[1].optimizer.momentum = 0.0;
    }
    return options;
}

double length(std::vector<float> const& weights, std::size_t begin, std::size_t end) {
    double sum = 0.0;
    for (std::size_t i = begin; i < end; ++i) {
        sum += double{weights[i]} * double{weights[i]};
    }
    return std::sqrt(sum);
}

} // namespace

TEST_CASE("A group that is left out keeps its gradient, and the others are clipped by their norm") {
    double const loud = 1000.0 * std::sqrt(80.0), quiet = 0.5 * std::sqrt(96.0);
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Sgd>;
        using Options = typename Stage::Options;
        for (int const world : {1, 2, 3}) {
            for (bool const is_callers : {false, true}) {
                Seen const left_out =
                    step<Stage>(world, options_of<Options>(false), 1000.0F, 0.5F, is_callers);
                CHECK(left_out.report.gradient_norm == Approx(std::hypot(loud, quiet)));
                CHECK(left_out.report.clip_coefficient == Approx(1.0 / loud));
                CHECK(left_out.report.group_norms.empty());
                CHECK(length(left_out.weights, 0, 80) == Approx(1.0));
                CHECK(left_out.weights[80] == -0.5F); // not one bit is scaled
                CHECK(left_out.weights[81] == 0.5F);
                Seen const clipped =
                    step<Stage>(world, options_of<Options>(true), 1000.0F, 0.5F, is_callers);
                CHECK(length(clipped.weights, 80, 176) == Approx(quiet / std::hypot(loud, quiet)));
            }
        }
        // The quiet group alone would be clipped; it does not matter how large it is.
        Seen const huge = step<Stage>(2, options_of<Options>(false), 1e-3F, 1e6F);
        CHECK(huge.report.clip_coefficient == 1.0F);
        CHECK(huge.weights[0] == -1e-3F);
        // The norms of the groups are reported as well, and the overflow of any group is seen.
        auto options = options_of<Options>(false);
        options.report.group_norms = true;
        Seen const reported = step<Stage>(2, options, 1000.0F, 0.5F);
        REQUIRE(reported.report.group_norms.size() == 2);
        CHECK(reported.report.group_norms[1] == Approx(quiet));
        CHECK(step<Stage>(2, options, 1.0F, INFINITY).report.is_skipped);
    });
}

TEST_CASE("A quiet matrix that is left out has a step of Muon's whole length") {
    using Stage = ZeroStage<2, RoundRobinPartitioner, Muon>;
    using Options = Stage::Options;
    double const whole =
        length(step<Stage>(2, options_of<Options>(true, false), 1e12F, 1.0F).weights, 80, 176);
    double const clipped =
        length(step<Stage>(2, options_of<Options>(true), 1e12F, 1.0F).weights, 80, 176);
    double const left_out =
        length(step<Stage>(2, options_of<Options>(false), 1e12F, 1.0F).weights, 80, 176);
    CHECK(whole > 0.5);
    CHECK(clipped < 0.1 * whole);
    CHECK(left_out == whole);
}

TEST_CASE("Groups that are left out of nothing, or leave nothing, are refused") {
    auto const refused = [](ZeroStage<2, Sgd>::Options const& options) {
        return outcome_of([&] { (void)step<ZeroStage<2, Sgd>>(1, options, 1.0F, 1.0F); }).message;
    };
    using Options = ZeroStage<2, Sgd>::Options;
    CHECK_THAT(refused(options_of<Options>(false, false)),
               contains_text("is_clipped = false in 1 of 2 parameter groups would be ignored"));
    auto none = options_of<Options>(false);
    none.groups[0].is_clipped = false;
    CHECK_THAT(refused(none), contains_text("gradient_clipping would clip nothing"));
    auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        return outcome_of([&] {
            ZeroStage<2, Sgd> const engine(communicator,
                                           {{.name = "loud", .elements = 80, .group = 0},
                                            {.name = "quiet", .elements = 96, .group = 1}},
                                           options_of<Options>(communicator.rank() == 0));
        });
    });
    CHECK(outcomes[0].type == "LayoutMismatch");
    CHECK_THAT(outcomes[1].message, contains_text("groups"));
}

} // namespace zero::test::clipped_groups_test
