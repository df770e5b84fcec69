#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

// When one rank fails, the others get `Aborted` with the cause in time, and no rank hangs.

namespace zero::test::failure_test {

namespace {

constexpr int world = 3;
constexpr int failing = 1;

/// Checks that rank 1 ended with `own`, that all other ranks ended with `Aborted`, that both name
/// the cause, and that `run_ranks` rethrew it.
void check_cause(Outcomes const& outcomes, std::string const& own, std::string const& cause) {
    for (int rank = 0; rank < world; ++rank) {
        Outcome const& outcome = outcomes.ranks[static_cast<std::size_t>(rank)];
        INFO("rank " << rank << ": " << outcome.message);
        CHECK(outcome.type == (rank == failing ? own : "Aborted"));
        CHECK_THAT(outcome.message, contains_text(cause));
        if (rank != failing) {
            CHECK_THAT(outcome.message, contains_text("rank 1"));
        }
    }
    CHECK(outcomes.rethrown == outcomes.ranks[failing]);
}

/// Checks that a new group in the same process works.
template <int N>
void check_new_group() {
    auto const steps = on_ranks<std::uint64_t>(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
        return run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0)
            .report()
            .step_count;
    });
    CHECK(steps == std::vector<std::uint64_t>(world, 1));
}

/// Runs a complete step, then one in which rank 1 calls `fail(engine)` instead of its second
/// micro-step.
template <int N, class Fail>
Outcomes fail_in_second_step(Fail const& fail) {
    return run_and_observe(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
        (void)run_step(engine, rank, 0).report();
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            if (rank == failing && micro_step == 1) {
                fail(engine);
            }
            run_micro_step(engine, rank, 1, micro_step);
        }
        (void)engine.step(0.01).report();
    });
}

} // namespace

TEST_CASE("After an exception in one rank's forward pass the others get Aborted with its text") {
    in_every_stage([]<int N>() {
        auto const outcomes = fail_in_second_step<N>([](auto& engine) {
            auto const weights = engine.acquire(0);
            throw std::runtime_error("the forward pass of layer 0 failed");
        });
        check_cause(outcomes, "other", "the forward pass of layer 0 failed");
        check_new_group<N>();
    });
}

TEST_CASE(
    "After an exception between the backward pass and step the others get Aborted with its text") {
    in_every_stage([]<int N>() {
        auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
            ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run_micro_step(engine, 0, 0, micro_step);
            }
            if (communicator.rank() == failing) {
                throw std::runtime_error("no room for the logbook");
            }
            (void)engine.step(0.01).report();
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run_micro_step(engine, 0, 0, micro_step);
            }
        });
        check_cause(outcomes, "other", "no room for the logbook");
    });
}

TEST_CASE(
    "An exception of any type in an initialiser releases the ranks that wait for the values") {
    in_every_stage([]<int N>() {
        Outcome own;
        auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            auto parameters = registration<float>(toy_specs());
            parameters[3].initialise = [](std::size_t, std::span<float>) {
                throw InvalidArgument("no such file");
            };
            auto const construct = [&] { ZeroStage<N> engine(communicator, parameters); };
            // Rank 0 alone initialises; the engine informs the others of its failure.
            if (communicator.rank() == 0) {
                own = outcome_of(construct);
            } else {
                construct();
            }
        });
        CHECK(own == Outcome{"InvalidArgument", "no such file"});
        for (std::size_t const rank : {1U, 2U}) {
            CHECK(outcomes.ranks[rank].type == "Aborted");
            CHECK_THAT(outcomes.ranks[rank].message, contains_text("rank 0: no such file"));
        }
    });
}

TEST_CASE("A refused step on one rank aborts the others if it is not caught") {
    auto const outcomes = fail_in_second_step<2>([](auto& engine) { engine.step(0.1); });
    check_cause(outcomes, "OutOfOrder", "step() inside a micro-step");
}

TEST_CASE("An engine destroyed in the middle of a step releases the ranks that wait for it") {
    in_every_stage([]<int N>() {
        auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            {
                ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
                (void)run_step(engine, rank, 0).report();
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                if (rank != failing) {
                    run_micro_step(engine, rank, 1, 0);
                    engine.end_micro_step();
                    (void)engine.step(0.01).report();
                }
            }
            throw std::logic_error("only rank 1 gets here");
        });
        for (std::size_t const rank : {0U, 2U}) {
            CHECK(outcomes.ranks[rank].type == "Aborted");
            CHECK_THAT(outcomes.ranks[rank].message,
                       contains_text("rank 1 destroyed its engine inside a step"));
        }
        CHECK(outcomes.rethrown == Outcome{"other", "only rank 1 gets here"});
        check_new_group<N>();
    });
}

TEST_CASE(
    "An exception that destroys the engine gives its own text as the cause, not the engine's") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        if (communicator.rank() == failing) {
            throw std::runtime_error("bad batch");
        }
        engine.end_micro_step();
    });
    check_cause(outcomes, "other", "bad batch");
}

TEST_CASE("A group whose ranks all fail at once ends before the time-out") {
    auto const start = std::chrono::steady_clock::now();
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()));
        engine.begin_step();
        throw std::runtime_error("rank " + std::to_string(communicator.rank()) + " gives up");
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(outcomes.ranks[rank]
              == Outcome{"other", "rank " + std::to_string(rank) + " gives up"});
    }
    CHECK(outcomes.rethrown.type == "other");
    CHECK(std::chrono::steady_clock::now() - start < test_time_out.time_out / 2);
}

namespace {

/// Trains on four ranks, on a communicator that the body owns, until rank 2 throws: inside a step,
/// or between two steps. Checks that every peer names the cause.
template <class Communicator, class Make>
void check_cause_on(Make const& make, bool is_inside_step) {
    constexpr int ranks = 4;
    auto const outcomes = run_and_observe(ranks, [&](LoopbackCommunicator& whole) {
        auto const owned = make(whole);
        using Stage = ZeroStage<2, Communicator>;
        Stage engine(owned->communicator, registration<float>(toy_specs()));
        for (std::uint64_t step = 0;; ++step) {
            bool const is_last = step == 1 && whole.rank() == 2;
            if (is_last && !is_inside_step) {
                throw std::runtime_error("the disk is full");
            }
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run_micro_step(engine, 0, step, micro_step);
                if (is_last) {
                    throw std::runtime_error("the disk is full");
                }
            }
            (void)engine.step(0.01).report();
        }
    });
    for (int rank = 0; rank < ranks; ++rank) {
        Outcome const& outcome = outcomes.ranks[static_cast<std::size_t>(rank)];
        INFO("rank " << rank << ": " << outcome.message);
        CHECK(outcome.type == (rank == 2 ? "other" : "Aborted"));
        CHECK_THAT(outcome.message, contains_text("the disk is full"));
    }
    CHECK(outcomes.rethrown == Outcome{"other", "the disk is full"});
}

struct OwnSplit {
    explicit OwnSplit(LoopbackCommunicator& whole) : communicator(whole.split(0, 0)) {}
    LoopbackCommunicator communicator;
};

struct OwnChecked {
    explicit OwnChecked(LoopbackCommunicator& whole)
        : part(whole.split(0, 0)), communicator(part) {}
    LoopbackCommunicator part;
    Checked<LoopbackCommunicator> communicator;
};

using TwoLevels = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;

struct OwnLevels {
    explicit OwnLevels(LoopbackCommunicator& whole)
        : intra(whole.split(whole.rank() % 2, 0)), inter(whole.split(whole.rank() / 2, 0)),
          communicator(intra, inter) {}
    LoopbackCommunicator intra;
    LoopbackCommunicator inter;
    TwoLevels communicator;
};

} // namespace

TEST_CASE("Every peer names the cause when the exception also destroys the communicator of the "
          "engine") {
    for (int run = 0; run < 5; ++run) {
        for (bool const is_inside_step : {true, false}) {
            check_cause_on<LoopbackCommunicator>(
                [](auto& whole) { return std::make_unique<OwnSplit>(whole); }, is_inside_step);
            check_cause_on<Checked<LoopbackCommunicator>>(
                [](auto& whole) { return std::make_unique<OwnChecked>(whole); }, is_inside_step);
            check_cause_on<TwoLevels>(
                [](auto& whole) { return std::make_unique<OwnLevels>(whole); }, is_inside_step);
        }
    }
}

TEST_CASE("A communicator that an exception destroys is named when nobody reports the exception") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& whole) {
        if (whole.rank() == 0) {
            OwnSplit owned(whole);
            ZeroStage<2> engine(owned.communicator, registration<float>(toy_specs()));
            return;
        }
        try {
            OwnSplit const owned(whole);
            throw std::runtime_error("caught in the body");
        } catch (std::runtime_error const&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1500)); // longer than peers wait
        }
    });
    CHECK(outcomes.ranks[0].type == "Aborted");
    CHECK_THAT(outcomes.ranks[0].message,
               contains_text("rank 1 left the group (an exception destroyed its communicator)"));
}

} // namespace zero::test::failure_test
