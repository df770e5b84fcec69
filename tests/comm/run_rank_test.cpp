#include "support/catch.hpp"
#include "support/outcome.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/comm/run_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace zero::test::run_rank_test {

namespace {

constexpr int world = 3;

/// Runs `body` on threads that the program starts itself and that call `run_rank`.
template <class Body>
std::vector<Outcome> on_own_threads(Body const& body) {
    auto group = LoopbackCommunicator::make_group(world, {.time_out = std::chrono::seconds(60)});
    std::vector<Outcome> outcomes(world);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < world; ++rank) {
        threads.emplace_back(
            [&, rank] { outcomes[rank] = outcome_of([&] { run_rank(group[rank], body); }); });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    return outcomes;
}

void meet(LoopbackCommunicator& communicator) {
    std::int64_t value = communicator.rank();
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum,
                                     HostBackend::default_compute_queue());
}

} // namespace

TEST_CASE("A failure on a thread of the program's own reaches the peers, with its first line") {
    auto const outcomes = on_own_threads([](LoopbackCommunicator& communicator) {
        if (communicator.rank() == 1) {
            throw std::runtime_error("the file is missing\nframe #0");
        }
        meet(communicator);
    });
    CHECK(outcomes[1] == Outcome{"other", "the file is missing\nframe #0"});
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes[rank].type == "Aborted");
        CHECK_THAT(outcomes[rank].message, contains_text("rank 1: the file is missing"));
        CHECK(outcomes[rank].message.find("frame") == std::string::npos);
    }
}

TEST_CASE("The cause that run_rank reports is final: a later one does not replace it") {
    auto group = LoopbackCommunicator::make_group(2);
    CHECK_THROWS_WITH(
        run_rank(group[1],
                 [](LoopbackCommunicator&) { throw std::runtime_error("the file is missing"); }),
        "the file is missing");
    group[1].abort("a later cause");
    Outcome const told = outcome_of([&] { meet(group[0]); });
    CHECK(told.type == "Aborted");
    CHECK_THAT(told.message, contains_text("rank 1: the file is missing"));
}

TEST_CASE("A rank that throws no std::exception is named") {
    auto const outcomes = on_own_threads([](LoopbackCommunicator& communicator) {
        if (communicator.rank() == 2) {
            try {
                run_rank(communicator, [](LoopbackCommunicator&) { throw 7; });
            } catch (int) {
                return;
            }
        }
        meet(communicator);
    });
    CHECK_THAT(outcomes[0].message,
               contains_text("rank 2 threw an exception that is not a std::exception"));
}

TEST_CASE("Peers that wait for a rank whose body has returned are told at once") {
    auto const start = std::chrono::steady_clock::now();
    auto const outcomes = on_own_threads([](LoopbackCommunicator& communicator) {
        meet(communicator);
        if (communicator.rank() == 1) {
            return; // early
        }
        meet(communicator);
    });
    CHECK(outcomes[1] == Outcome{});
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes[rank].type == "Aborted");
        CHECK_THAT(outcomes[rank].message, contains_text("rank 1 finished and left the group"));
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30)); // of 60
}

TEST_CASE("Ranks may run several bodies, the same number on each, at their own pace") {
    auto group = LoopbackCommunicator::make_group(world, {.time_out = std::chrono::seconds(60)});
    std::vector<Outcome> outcomes(world);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < world; ++rank) {
        threads.emplace_back([&, rank] {
            outcomes[rank] = outcome_of([&] {
                for (int turn = 0; turn < 3; ++turn) {
                    run_rank(group[rank], meet);
                    if (rank == 1) { // its peers already wait in the next body
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                    }
                }
                run_rank(group[rank], [](LoopbackCommunicator& communicator) {
                    run_rank(communicator, meet); // a part of the body, which goes on
                    meet(communicator);
                });
            });
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(outcomes == std::vector<Outcome>(world));
}

TEST_CASE("A second thread on the communicator of a rank is refused, and the first one goes on") {
    auto group = LoopbackCommunicator::make_group(2, {.time_out = std::chrono::seconds(60)});
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (Outcome& outcome : outcomes) {
        threads.emplace_back([&] {
            outcome = outcome_of([&] { meet(group[0]); });
            if (outcome.type == "OutOfOrder") { // the other thread waits until now
                meet(group[1]);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    Outcome const& refused = outcomes[outcomes[0] == Outcome{} ? 1 : 0];
    CHECK(refused.type == "OutOfOrder");
    CHECK_THAT(refused.message, contains_text("give each thread the communicator of its own rank"));
    CHECK(std::count(outcomes.begin(), outcomes.end(), Outcome{}) == 1);
}

TEST_CASE("Ranks that return may run again, and return what their bodies return") {
    auto group = LoopbackCommunicator::make_group(1);
    for (int turn = 0; turn < 2; ++turn) {
        int const result = run_rank(group[0], [&](LoopbackCommunicator& communicator) {
            meet(communicator);
            return turn + 10;
        });
        CHECK(result == turn + 10);
    }
}

} // namespace zero::test::run_rank_test
