#include "norm_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

// Gradient norms, compared with values worked out by hand.

namespace zero::test::gradient_norms_test {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double no_number = std::numeric_limits<double>::infinity();
using Norms = std::vector<double>;

/// Two groups, with a parameter of two units, a frozen one and an empty one.
std::vector<ParameterSpec> specs() {
    return {{"a", 2, {0}, 0, true},
            {"tied", 1, {0, 1}, 1, true},
            {"frozen", 3, {1}, 1, false},
            {"empty", 0, {1}, 0, true},
            {"b", 4, {1}, 0, true}};
}

Values const plain{{3, -4}, {6}, {9, 9, 9}, {}, {0, 1, -2, 2}}; // 'tied' adds up to 12

Values times(Values values, float factor) {
    for (auto& parameter : values) {
        for (float& value : parameter) {
            value *= factor;
        }
    }
    return values;
}

/// Returns all norms when two ranks have these gradients in each of two micro-steps.
template <int N, class... Policies>
Norms norms_of(Values const& values,
               typename ZeroStage<N, Policies...>::Options const& options = {}) {
    auto const ranks = on_ranks<Norms>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<N, Policies...> engine(communicator, registration<float>(specs()), options);
        engine.begin_step();
        float const scale = engine.loss_scale();
        for (auto const micro_step : engine.micro_steps(2)) {
            add_values(engine, times(values, scale));
        }
        return all_norms(engine);
    });
    CHECK(bits_of(ranks[1]) == bits_of(ranks[0]));
    return ranks[0];
}

/// For l1, l2 and infinity: the global norm, two groups, five parameters.
Norms by_hand(double factor = 1.0) {
    Norms norms{24, 12, 12, 7, 12, 0, 0, 5, std::sqrt(178.0), std::sqrt(34.0), 12, 5, 12, 0, 0, 3,
                12, 4,  12, 4, 12, 0, 0, 2};
    for (double& norm : norms) {
        norm *= factor;
    }
    return norms;
}

} // namespace

TEMPLATE_TEST_CASE_SIG("Norms of the average gradient equal those worked out by hand, globally, by "
                       "group and by parameter",
                       "", ((int N), N), 0, 1, 2, 3) {
    CHECK(norms_of<N>(plain) == by_hand());
    CHECK(norms_of<N, RoundRobinPartitioner>(plain) == by_hand());
    CHECK(norms_of<N>(times(plain, 2.0F)) == by_hand(2.0));
}

TEMPLATE_TEST_CASE_SIG("Norms contain neither loss scale nor predivision", "", ((int N), N), 0, 1,
                       2, 3) {
    CHECK(norms_of<N, StaticLossScaler>(plain, {.loss_scaler = {.scale = 1024.0F}}) == by_hand());
    CHECK(norms_of<N, DynamicLossScaler>(plain) == by_hand());
    CHECK(norms_of<N>(plain, {.reduction = {.predivide = 8.0F}}) == by_hand());
    CHECK(norms_of<N>(plain, {.reduction = {.kind = ReductionKind::sum}}) == by_hand(4.0));
    CHECK(norms_of<N>(plain, {.reduction = {.kind = ReductionKind::mean_over_ranks}})
          == by_hand(2.0)); // two ranks, two micro-steps
    CHECK(norms_of<N>(plain, {.gradient_clipping = 0.5F}) == by_hand()); // before clipping
}

TEMPLATE_TEST_CASE_SIG("Norms of zero gradients are zero", "", ((int N), N), 0, 3) {
    CHECK(norms_of<N>(times(plain, 0.0F)) == Norms(24, 0.0));
    CHECK(norms_of<N>(times(plain, -0.0F)) == Norms(24, 0.0));
}

TEMPLATE_TEST_CASE_SIG("An infinite or NaN gradient makes the norms of its parameter, its group "
                       "and the model infinite, and no other",
                       "", ((int N), N), 0, 1, 2, 3) {
    for (float const bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        auto values = plain;
        values[4][2] = bad;
        CHECK(norms_of<N>(values) == Norms{no_number, no_number, 12, 7, 12, 0, 0, no_number,
                                           no_number, no_number, 12, 5, 12, 0, 0, no_number,
                                           no_number, no_number, 12, 4, 12, 0, 0, no_number});
    }
}

TEST_CASE("The largest and the smallest numbers have ordinary norms") {
    auto const alone = [](Values const& values) {
        return norms_of<2>(values, {.reduction = {.kind = ReductionKind::sum,
                                                  .schedule = ReductionSchedule::boundary}});
    };
    // Two ranks and two micro-steps add up to four times the gradient.
    Norms const large = alone({{0x1p125F, -0x1p125F}, {0}, {0, 0, 0}, {}, {0, 0, 0, 0}});
    CHECK(large[0] == 0x1p128);
    CHECK(large[8] == std::sqrt(2.0) * 0x1p127);
    CHECK(large[16] == 0x1p127);
    Norms const small =
        alone({{0, 0}, {0}, {0, 0, 0}, {}, {0x1p-149F, -0x1p-149F, 0x1p-149F, 0x1p-149F}});
    CHECK(small[0] == 0x1p-145);
    CHECK(small[8] == 0x1p-146);
    CHECK(small[16] == 0x1p-147);
}

TEST_CASE(
    "Norms are available between the last micro-step and step, and no micro-step may follow them") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(specs()));
        CHECK_THROWS_WITH(engine.gradient_norms(),
                          contains_text("gradient_norms() outside a step"));
        engine.begin_step();
        CHECK_THROWS_WITH(engine.gradient_norms(),
                          contains_text("gradient_norms() without a micro-step"));
        engine.begin_micro_step();
        CHECK_THROWS_AS(engine.gradient_norms(), OutOfOrder);
        add_values(engine, plain);
        engine.end_micro_step();
        CHECK(engine.gradient_norms() == Norms{std::sqrt(178.0)}); // the global l2 norm
        CHECK_THROWS_WITH(engine.begin_micro_step(),
                          contains_text("after gradient_norms(); call step()"));
        CHECK(engine.gradient_norms(NormKind::infinity) == Norms{12});
        CHECK(engine.step(0.1).report().gradient_norm == std::sqrt(178.0));
        CHECK_THROWS_AS(engine.gradient_norms(), OutOfOrder);
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        add_values(engine, times(plain, 2.0F));
        engine.end_micro_step();
        CHECK(engine.gradient_norms(NormKind::l1) == Norms{48});
        engine.cancel_step();
        engine.begin_step();
        engine.begin_micro_step();
        add_values(engine, plain);
        engine.end_micro_step();
        CHECK(engine.gradient_norms(NormKind::l1) == Norms{24}); // reduced again in this step
    });
}

TEST_CASE("A rank that does not compute the norms causes a CollectiveMismatch") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(specs()));
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        add_values(engine, plain);
        engine.end_micro_step();
        if (communicator.rank() == 0) {
            (void)engine.gradient_norms(NormKind::l1);
        }
        (void)engine.step(0.1).report();
    });
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == "CollectiveMismatch");
        CHECK_THAT(outcome.message,
                   contains_text("'gradient norms, kind and scope: 0'")
                       && contains_text("'rate 0.10000000000000001 after 1 micro-step,"));
    }
}

} // namespace zero::test::gradient_norms_test
