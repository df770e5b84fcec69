#include "stage/unplanned_run.hpp"

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

// Backward passes in orders for which no memory is planned. A call either finds memory and gives
// the right bits, or throws OutOfOrder and changes nothing; the end of a micro-step always works.

namespace zero::test::unplanned_order_test {

namespace {

template <int N>
using Stage = ZeroStage<N, Parameters<bfloat16, float>, SizeCappedBucketer>;

constexpr int world = 2;
constexpr std::size_t most = std::numeric_limits<std::size_t>::max();

template <class Engine>
std::vector<std::vector<float>> values_of(Engine& engine) {
    return full_parameters(engine);
}

constexpr std::size_t steps = 2;
constexpr std::size_t micro_steps = 2;

template <int N>
std::vector<Outcomes> unplanned(Plan const& plan) {
    return on_ranks<Outcomes>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        std::mt19937_64 random(plan.seed);
        Model const model = random_model(random);
        // Stage 3 reduces by unit, so ranks use the same order.
        std::mt19937_64 order(plan.seed * 7 + (N == 3 ? 0 : rank));
        Registered registered(model, plan.has_callers_gradients);
        Outcomes outcomes;
        Stage<N> engine(communicator, registered.parameters,
                        {.extra_leases = plan.extra_leases,
                         .poison = true,
                         .bucketer = {.bucket_bytes = model.bucket_bytes},
                         .reduction = {.schedule = plan.schedule}});
        Run run(engine, model, rank, outcomes);
        for (std::size_t step = 0; step < steps; ++step) {
            auto const expected = values_of(engine);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                run.unplanned_micro_step(order, step * micro_steps + micro_step, expected,
                                         plan.is_in_order);
            }
            (void)engine.step(0.01).report();
        }
        outcomes.values = values_of(engine);
        return outcomes;
    });
}

/// Writes and reports the same in stage 0, in reverse order.
std::vector<Outcomes> reference(Plan const& plan, std::vector<Outcomes> const& done) {
    return on_ranks<Outcomes>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        std::mt19937_64 random(plan.seed);
        Model const model = random_model(random);
        Registered registered(model, plan.has_callers_gradients);
        Outcomes outcomes;
        Stage<0> engine(communicator, registered.parameters,
                        {.extra_leases = most, .reduction = {.schedule = plan.schedule}});
        Run run(engine, model, rank, outcomes);
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                std::uint64_t const number = step * micro_steps + micro_step;
                auto written = done[rank].written[number];
                std::sort(written.begin(), written.end(),
                          [](Written const& a, Written const& b) { return a.unit > b.unit; });
                for (Written const& unit : written) {
                    (void)run.write(unit.unit, number);
                    if (unit.is_reported) {
                        (void)run.report(unit.unit);
                    }
                }
            }
            (void)engine.step(0.01).report();
        }
        outcomes.values = values_of(engine);
        return outcomes;
    });
}

/// Checks one run against stage 0. @return the number of refused calls
template <int N>
std::size_t check(Plan const& plan) {
    INFO("seed " << plan.seed << ", stage " << N << ", extra leases " << plan.extra_leases
                 << (plan.is_in_order ? ", in order" : "")
                 << (plan.has_callers_gradients ? ", caller-owned gradients" : ""));
    auto const found = unplanned<N>(plan);
    auto const expected = reference(plan, found);
    std::size_t refused = 0;
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        CHECK(found[rank].wrong == std::vector<std::string>{});
        CHECK(expected[rank].wrong == std::vector<std::string>{});
        CHECK(expected[rank].refused == 0);
        CHECK((found[rank].values == expected[rank].values));
        refused += found[rank].refused;
    }
    return refused;
}

template <int N>
std::size_t check_all(bool is_in_order, std::size_t extra_leases, std::uint64_t rounds) {
    std::size_t refused = 0;
    for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
        for (bool const has_callers_gradients : {false, true}) {
            auto const schedule =
                seed % 2 == 0 ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
            refused += check<N>({seed, is_in_order, extra_leases, has_callers_gradients, schedule});
        }
    }
    return refused;
}

constexpr std::uint64_t rounds = 20;

} // namespace

TEMPLATE_TEST_CASE_SIG("A unit that comes out of order gets the right bits or is refused, and the "
                       "micro-step ends",
                       "", ((int N), N), 2, 3) {
    CHECK(check_all<N>(false, 0, rounds) > 0);
    CHECK(check_all<N>(false, 1, rounds) > 0);
}

TEMPLATE_TEST_CASE_SIG("In the planned order no unit is refused, even while the one before is held",
                       "", ((int N), N), 2, 3) {
    CHECK(check_all<N>(true, 0, rounds) == 0);
}

TEMPLATE_TEST_CASE_SIG("With a spare place for every bucket no order is refused", "", ((int N), N),
                       2, 3) {
    CHECK(check_all<N>(false, most, rounds) == 0);
}

} // namespace zero::test::unplanned_order_test
