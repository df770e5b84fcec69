#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::skip_limit_test {

namespace {

/// Makes a step; rank `writer` writes the gradient.
template <class Engine>
StepReport step(Engine& engine, int rank, float gradient, int writer = 1) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    using Gradient = typename Engine::GradientType;
    engine.gradients(0)[0][0] = from_float<Gradient>(rank == writer ? gradient : 0.0F);
    engine.gradients_ready(0);
    engine.end_micro_step();
    return engine.step(0.1).report();
}

constexpr float bad = std::numeric_limits<float>::infinity();

/// What a rank saw in one call of `run`.
struct Run {
    std::vector<std::string> types; ///< of the exception of each step; empty: it returned
    std::string message;            ///< of the first exception
    std::vector<std::uint64_t> skipped_in_a_row; ///< of the steps that returned
    std::uint64_t step_count = 0;
    float weight = 0.0F;
};

/// Makes a step for each gradient and goes on after exceptions.
template <class Engine>
Run run(Engine& engine, LoopbackCommunicator& communicator, std::vector<float> const& gradients) {
    Run seen;
    int const writer = communicator.size() > 1 ? 1 : 0;
    for (float const gradient : gradients) {
        Outcome const outcome = outcome_of([&] {
            seen.skipped_in_a_row.push_back(
                step(engine, communicator.rank(), gradient, writer).skipped_in_a_row);
        });
        bool const is_returned = outcome.type == "returned";
        seen.types.push_back(is_returned ? "" : outcome.type);
        if (!is_returned && seen.message.empty()) {
            seen.message = outcome.message;
        }
    }
    seen.step_count = engine.step_count();
    engine.for_each_full_parameter([&](auto, auto values) { seen.weight = to_float(values[0]); });
    return seen;
}

/// Counts what the calling thread waits for.
struct CountingBackend : HostBackend {
    inline static thread_local std::size_t waits = 0;
    static void synchronise(Event const& event) {
        ++waits;
        HostBackend::synchronise(event);
    }
};

} // namespace

TEST_CASE("A report counts the steps that were skipped in a row") {
    auto const ranks =
        on_ranks<std::vector<std::uint64_t>>(2, [](LoopbackCommunicator& communicator) {
            ZeroStage<2, Sgd> engine(communicator, {{.name = "w", .elements = 3}});
            std::vector<std::uint64_t> counts;
            for (float const gradient : {1.0F, bad, bad, 1.0F, bad, bad, bad, 1.0F}) {
                counts.push_back(step(engine, communicator.rank(), gradient).skipped_in_a_row);
            }
            return counts;
        });
    CHECK(ranks == std::vector<std::vector<std::uint64_t>>(2, {0, 1, 2, 0, 1, 2, 3, 0}));
}

TEST_CASE("The second step after as many skipped ones as the option allows throws on every rank") {
    in_every_stage([]<int N>() {
        for (int const world : {1, 2, 3}) {
            auto const ranks = on_ranks<Run>(world, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(communicator, {{.name = "w", .elements = 3}},
                                         {.skip_limit = 2, .optimizer = {.momentum = 0.0}});
                // The limit is reached by the steps 4 and 9, numbered from 1.
                return run(engine, communicator,
                           {bad, 1.0F, bad, bad, 1.0F, 1.0F, 1.0F, bad, bad, bad, 1.0F, 1.0F});
            });
            for (Run const& seen : ranks) {
                CHECK(seen.types
                      == std::vector<std::string>{"", "", "", "", "", "TooManySkips", "", "", "",
                                                  "", "TooManySkips", ""});
                CHECK_THAT(
                    seen.message,
                    contains_text("2 steps in a row were skipped, up to step 4, the last because 1 "
                                  "gradient is infinite or NaN, first element 0 of parameter "
                                  "'w'"));
                // Step 5 has a finite gradient, and comes after the limit.
                CHECK(seen.skipped_in_a_row
                      == std::vector<std::uint64_t>{1, 0, 1, 2, 3, 0, 1, 2, 3, 0});
                CHECK(seen.step_count == 3);
                CHECK(seen.weight == Approx(-0.3 / world));
            }
        }
    });
}

TEST_CASE("By default a hundred skipped steps are the limit, and change nothing from then on") {
    auto const ranks = on_ranks<Run>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Parameters<bfloat16>> engine(communicator, {{.name = "w", .elements = 3}});
        std::vector<float> gradients(200, std::numeric_limits<float>::quiet_NaN());
        gradients[100] = 1.0F; // the step after the limit is reached
        return run(engine, communicator, gradients);
    });
    for (Run const& seen : ranks) {
        REQUIRE(seen.types.size() == 200);
        CHECK(std::count(seen.types.begin(), seen.types.end(), "TooManySkips") == 1);
        CHECK(seen.types[101] == "TooManySkips"); // `begin_step` of step 102
        CHECK(seen.step_count == 0);
        CHECK(seen.weight == 0.0F);
        CHECK(seen.skipped_in_a_row[100] == 101);
        CHECK(seen.skipped_in_a_row[101] == 1);
    }
}

TEST_CASE("A limit freezes the loss scale as well") {
    auto const scales = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<1, Sgd, DynamicLossScaler> engine(
            communicator, {{.name = "w", .elements = 3}},
            {.skip_limit = 3, .loss_scaler = {.initial_scale = 1024.0F, .hysteresis = 1}});
        std::vector<float> next;
        for (int i = 0; i < 4; ++i) {
            next.push_back(step(engine, communicator.rank(), bad).next_loss_scale);
        }
        return next;
    });
    CHECK(scales == std::vector<std::vector<float>>(2, {512.0F, 256.0F, 128.0F, 128.0F}));
}

TEST_CASE("No limit never throws") {
    auto const ranks = on_ranks<Run>(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<3, Sgd> engine(communicator, {{.name = "w", .elements = 3}}, {.skip_limit = 0});
        return run(engine, communicator, std::vector<float>(120, bad));
    });
    CHECK(ranks[0].types == std::vector<std::string>(120, ""));
    CHECK(ranks[1].skipped_in_a_row.back() == 120);
}

TEST_CASE("A callback is told of the first skipped step, two steps later") {
    auto const ranks =
        on_ranks<std::vector<std::string>>(2, [](LoopbackCommunicator& communicator) {
            std::vector<std::string> told;
            ZeroStage<2, Sgd>::Options options;
            if (communicator.rank() == 1) { // on one rank only
                options.on_skip = [&told](std::string const& text) { told.push_back(text); };
            }
            ZeroStage<2, Sgd> engine(communicator, {{.name = "w", .elements = 3}}, options);
            for (float const gradient : {1.0F, bad, bad, 1.0F, 1.0F, bad, 1.0F}) {
                (void)step(engine, communicator.rank(), gradient);
                told.emplace_back("-");
            }
            return told;
        });
    CHECK(ranks[0] == std::vector<std::string>(7, "-"));
    CHECK(ranks[1]
          == std::vector<std::string>{
              "-", "-", "-",
              "zero: step 2 was skipped: 1 gradient is infinite or NaN, first element 0 of "
              "parameter 'w'; it changed no weight and no optimizer state (seen by rank 1).",
              "-", "-", "-", "-"});
}

TEST_CASE("The default limit makes no step wait") {
    auto const waits = [](std::size_t limit, bool calls_back) {
        return on_ranks<std::size_t, Loopback<CountingBackend>>(
            2, [&](Loopback<CountingBackend>& communicator) {
                using Zero = ZeroStage<2, Sgd, Loopback<CountingBackend>>;
                typename Zero::Options options{.skip_limit = limit};
                if (calls_back) {
                    options.on_skip = [](std::string const&) {};
                }
                Zero engine(communicator, {{.name = "w", .elements = 3}}, options);
                CountingBackend::waits = 0;
                for (int i = 0; i < 90; ++i) {
                    engine.begin_step();
                    engine.begin_micro_step(MicroStep::last);
                    engine.gradients(0)[0][0] = 1.0F;
                    engine.gradients_ready(0);
                    engine.end_micro_step();
                    (void)engine.step(0.1);
                }
                return std::exchange(CountingBackend::waits, 0);
            });
    };
    std::size_t const without = waits(0, false)[0]; // the transport waits as well
    std::size_t const standard = ZeroStage<2, Sgd>::Options{}.skip_limit;
    CHECK(standard == 100);
    CHECK(waits(standard, false) == std::vector<std::size_t>{without, without});
    CHECK(waits(standard, true) == std::vector<std::size_t>{without + 88, without + 88});
}

TEST_CASE("A step begins while the last one still runs, whatever its number") {
    auto const running = on_ranks<std::vector<int>>(1, [](LoopbackCommunicator& communicator) {
        host::ThreadedQueue compute;
        host::ThreadedQueue communication;
        ZeroStage<2, Sgd> engine(
            communicator, {{.name = "w", .elements = 3}},
            {.compute_queue = &compute, .communication_queue = &communication});
        std::vector<int> seen;
        for (int count = 0; count < 4; ++count) {
            Gate gate;
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            engine.gradients(0)[0][0] = 1.0F;
            engine.gradients_ready(0);
            engine.end_micro_step();
            gate.hold(compute);
            auto const ticket = engine.step(0.1);
            engine.begin_step();
            seen.push_back(ticket.done().is_complete() ? 0 : 1);
            gate.open();
            engine.cancel_step();
        }
        return seen;
    });
    CHECK(running[0] == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("Ranks with different skip limits are refused") {
    auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        return outcome_of([&] {
            ZeroStage<1, Sgd> engine(communicator, {{.name = "w", .elements = 3}},
                                     {.skip_limit = static_cast<std::size_t>(communicator.rank())});
        });
    });
    CHECK(outcomes[0].type == "LayoutMismatch");
    CHECK_THAT(outcomes[0].message, contains_text("skip_limit"));
}

} // namespace zero::test::skip_limit_test
