#include "slow_load.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/detail/on_every_rank.hpp>
#include <zero/stage/detail/state/state_access.hpp>
#include <zero/stage/zero_stage.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// Waits for files have a limit of their own, not the time-out of the communicator.

namespace zero::test::slow_files_test {

namespace {

using namespace std::chrono_literals;

struct Seen {
    Outcome outcome;
    std::vector<std::uint64_t> values;
    std::uint64_t steps = 0; ///< that the engine made afterwards
};

/// Calls `detail::on_files` on three ranks with a time-out of 0.4 s. Rank 1 needs 1.5 s and then
/// calls `end()`.
template <class End>
std::vector<Seen> run_slowly(std::chrono::milliseconds limit, End const& end) {
    std::vector<Seen> seen(3);
    run_ranks(3, {.time_out = 400ms}, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        auto const access = detail::access_to(engine);
        seen[rank].outcome = outcome_of([&] {
            seen[rank].values = detail::on_files(
                access, "write a slow file",
                [&](detail::OnCaller) -> std::uint64_t {
                    if (rank == 1) {
                        std::this_thread::sleep_for(1500ms);
                        end();
                    }
                    return 10 + rank;
                },
                limit);
        });
        if (limit > 1s) { // otherwise rank 1 is late for the step as well
            seen[rank].steps = run_step(engine, rank, 0).report().step_count;
        }
    });
    return seen;
}

} // namespace

TEST_CASE("A rank may need longer for its file than the time-out of the communicator") {
    for (Seen const& seen : run_slowly(60s, [] {})) {
        CHECK(seen.outcome == Outcome{});
        CHECK(seen.values == std::vector<std::uint64_t>{10, 11, 12});
        CHECK(seen.steps == 1);
    }
}

TEST_CASE("A slow file that cannot be written is an error on every rank, and the engine goes on") {
    auto const ranks = run_slowly(60s, [] { throw std::runtime_error("no space is left"); });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK_THAT(ranks[rank].outcome.message, contains_text("no space is left"));
        CHECK((ranks[rank].outcome.message.find("rank 1 could not write a slow file")
               != std::string::npos)
              == (rank != 1));
        CHECK(ranks[rank].steps == 1);
    }
}

TEST_CASE("A file that is not written within the limit is an error that names the rank") {
    for (Seen const& seen : run_slowly(600ms, [] {})) {
        CHECK_THAT(seen.outcome.message,
                   contains_text("rank 1 did not write a slow file within 600 ms"));
    }
}

TEST_CASE("A load ends on every rank when one needs longer than file_time_out") {
    auto const outcomes =
        load_slowly<LoopbackCommunicator>([](auto& communicator, auto const& use) {
            ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
            use(engine);
        });
    for (Outcome const& outcome : outcomes) {
        CHECK_THAT(outcome.message,
                   contains_text("rank 1 did not load the checkpoint within 500 ms")
                       && contains_text("file_time_out"));
    }
}

TEST_CASE(
    "Work on files calls back on the thread that waits for it, also after its wait has ended") {
    for (bool const waits : {true, false}) {
        std::thread::id called;
        std::string thrown;
        auto const work = [&](detail::OnCaller on_caller) {
            on_caller([&] { called = std::this_thread::get_id(); });
            thrown =
                outcome_of([&] { on_caller([] { throw std::runtime_error("no copy"); }); }).message;
        };
        {
            detail::FileThread thread(work);
            while (waits && !thread.wait_for(1ms)) {}
        }
        CHECK(called == std::this_thread::get_id());
        CHECK(thrown == "no copy");
    }
}

} // namespace zero::test::slow_files_test
