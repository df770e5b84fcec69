#include "report.hpp"

#include <zero/comm/detail/polled_time.hpp>
#include <zero/comm/detail/rendezvous.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/host/inline_queue.hpp>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace zero::test::time_out_test {

using test::contains;
using test::Report;

namespace {

void meet(LoopbackCommunicator& communicator) {
    host::InlineQueue queue;
    std::int64_t value = 1;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue, {"late meeting", 3});
}

} // namespace

TEST_CASE("A rank that waits longer than the time-out gets TimedOut with the missing ranks, the "
          "others Aborted") {
    auto group = LoopbackCommunicator::make_group(5, {.time_out = std::chrono::milliseconds(50)});
    Report report;
    std::atomic<int> timed_out{0};
    std::vector<std::thread> threads;
    for (std::size_t const rank : {0U, 2U, 3U}) { // 1 and 4 never enter
        threads.emplace_back([&, rank] {
            try {
                meet(group[rank]);
                report.expect(false, "a collective without two of its ranks returned");
            } catch (TimedOut const& error) {
                ++timed_out;
                report.expect(contains(error.what(), "50 ms for rank 1, 4 ")
                                  && contains(error.what(), "'late meeting 3'"),
                              error.what());
            } catch (Aborted const& error) {
                report.expect(contains(error.what(), "50 ms for rank 1, 4 "), error.what());
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    report.check();
    CHECK(timed_out == 1);
    CHECK_THROWS_WITH(meet(group[1]), test::contains_text("50 ms for rank 1, 4 ")); // too late
}

TEST_CASE("The time-out is rethrown, not its consequences") {
    std::atomic<bool> is_over{false};
    CHECK_THROWS_AS(run_ranks(4, {.time_out = std::chrono::milliseconds(50)},
                              [&](LoopbackCommunicator& communicator) {
                                  if (communicator.rank()
                                      == 1) { // stays away until the others have given up
                                      while (!is_over) {
                                          std::this_thread::yield();
                                      }
                                      return;
                                  }
                                  try {
                                      meet(communicator);
                                  } catch (...) {
                                      is_over = true;
                                      throw;
                                  }
                              }),
                    TimedOut);
}

TEST_CASE("A sum over ranks that one rank alone asks for tells that every rank must call it") {
    enum class Other { finishes, calls_another, stays_away };
    for (Other const other : {Other::finishes, Other::calls_another, Other::stays_away}) {
        auto group = LoopbackCommunicator::make_group(
            2, {.time_out = other == Other::stays_away ? std::chrono::milliseconds(50)
                                                       : std::chrono::milliseconds(60'000)});
        std::thread peer;
        if (other == Other::calls_another) {
            peer = std::thread([&] {
                try {
                    meet(group[1]);
                } catch (CollectiveMismatch const&) { // the other rank checks the message
                }
            });
        } else if (other == Other::finishes) {
            LoopbackCommunicator const leaving = std::move(group[1]);
        }
        CHECK_THROWS_WITH(
            (void)sum_over_ranks(group[0], 1.0),
            contains_text("'sum_over_ranks(), sum 0', for a call that every rank must "
                          "make"));
        if (peer.joinable()) {
            peer.join();
        }
    }
}

TEST_CASE("A time-out must be positive and may be longer than any clock") {
    CHECK(LoopbackOptions{}.time_out == std::chrono::minutes(30));
    CHECK_THROWS_AS(LoopbackCommunicator::make_group(2, {.time_out = std::chrono::milliseconds(0)}),
                    InvalidArgument);
    CHECK_THROWS_AS(
        LoopbackCommunicator::make_group(2, {.time_out = std::chrono::milliseconds(-1)}),
        InvalidArgument);
    CHECK_NOTHROW(run_ranks(3, {.time_out = std::chrono::milliseconds::max()},
                            [](LoopbackCommunicator& communicator) {
                                for (int call = 0; call < 100; ++call) {
                                    meet(communicator);
                                }
                            }));
}

TEST_CASE("A pause counts as a quarter of the time-out, so the fourth poll after one ends it") {
    using std::chrono::milliseconds;
    detail::PolledTime time(milliseconds(800));
    CHECK(time.slice() == milliseconds(100));
    auto now = detail::PolledTime::Clock::now();
    for (int pause = 1; pause <= 4; ++pause) {
        now += std::chrono::hours(1);
        CHECK(time.poll(now) == (pause == 4));
        CHECK(time.waited() == pause * milliseconds(200));
    }
}

TEST_CASE("A rank whose time-out ended sleeps while it waits for a better cause of an abort") {
    detail::Rendezvous rendezvous(2, std::chrono::milliseconds(1));
    rendezvous.abort("a provisional cause", true); // a better cause may replace it within a second
    auto const begin = std::chrono::steady_clock::now();
    std::clock_t const busy_before = std::clock(); // processor time of all threads
    CHECK_THROWS_WITH(rendezvous.enter(0, {"meeting", 1}), contains_text("a provisional cause"));
    double const busy = static_cast<double>(std::clock() - busy_before) / CLOCKS_PER_SEC;
    double const waited =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(waited > 0.0);
    CHECK(busy < 0.1 * waited);
}

TEST_CASE("A cause whose text does not fit into memory replaces an older text all the same") {
    detail::Rendezvous rendezvous(2, std::chrono::seconds(60));
    rendezvous.abort("a provisional cause", true);
    char const letter = 'x';
    rendezvous.abort({&letter, std::string().max_size() + 1}, false); // never read
    CHECK(rendezvous.cause().empty());
    CHECK_THROWS_AS(rendezvous.enter(0, {"meeting", 1}), Aborted);
}

} // namespace zero::test::time_out_test
