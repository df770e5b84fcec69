// An exception on one rank, wherever it is thrown, reaches the other ranks as Aborted with its
// cause.

#include "host/queue_kinds.hpp"
#include "report.hpp"
#include "support/faulty_backend.hpp"

#include <zero/comm/detail/failure_record.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace zero::test::abort_test {

using test::contains;
using test::message_of;
using test::Report;

namespace {

constexpr LoopbackOptions options{.time_out = std::chrono::seconds(60)};

using FaultyLoopback = Loopback<FaultyBackend>;

std::vector<std::size_t> even_cuts(int world, std::size_t extent) {
    std::vector<std::size_t> cuts;
    for (int rank = 0; rank <= world; ++rank) {
        cuts.push_back(static_cast<std::size_t>(rank) * extent);
    }
    return cuts;
}

template <class Communicator>
void meet(Communicator& communicator, host::Queue& queue) {
    std::int64_t value = 1;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue, {"meeting", 0});
    queue.synchronise();
}

} // namespace

TEMPLATE_TEST_CASE("An exception before a collective releases the ranks that wait in it", "",
                   test::InlineKind, test::ThreadedKind, test::DelayingKind) {
    for (int world = 2; world <= 8; world += 3) {
        Report report;
        CHECK_THROWS_WITH(
            run_ranks(world, options,
                      [&](LoopbackCommunicator& communicator) {
                          auto const queue = TestType::make(1);
                          meet(communicator, *queue);
                          if (communicator.rank() == 1) {
                              throw std::runtime_error("rank 1 has had enough");
                          }
                          std::string const text =
                              message_of<Aborted>([&] { meet(communicator, *queue); });
                          report.expect(contains(text, "rank 1: rank 1 has had enough"), text);
                      }),
            "rank 1 has had enough");
        report.check();
    }
}

TEMPLATE_TEST_CASE(
    "An exception inside a collective releases all ranks, and the peers get it in the same call",
    "", test::InlineKind, test::ThreadedKind, test::DelayingKind) {
    constexpr int world = 4;
    auto const cuts = even_cuts(world, 100);
    for (int failing = 0; failing < world; ++failing) {
        Report report;
        CHECK_THROWS_WITH(
            run_ranks<FaultyLoopback>(
                world, options,
                [&](FaultyLoopback& communicator) {
                    std::vector<float> values(400, 1.0F);
                    auto const queue = TestType::make(2);
                    if (communicator.rank() == failing) {
                        FaultyBackend::failing_queue = queue.get();
                    }
                    meet(communicator, *queue);
                    try {
                        communicator.all_reduce(static_cast<float const*>(values.data()),
                                                values.data(), cuts, queue.get(), {"all", 7});
                        report.expect(false, "an all-reduce without one of its extents returned");
                    } catch (Aborted const& error) {
                        report.expect(communicator.rank() != failing,
                                      "the failing rank got Aborted");
                        report.expect(contains(error.what(), "rank " + std::to_string(failing)
                                                                 + ": the sum failed"),
                                      error.what());
                    }
                }),
            "the sum failed");
        FaultyBackend::failing_queue = nullptr;
        report.check();
    }
}

TEST_CASE("An exception in a worker is thrown by the next collective of that rank and aborts the "
          "others") {
    Report report;
    CHECK_THROWS_WITH(
        run_ranks(3, options,
                  [&](LoopbackCommunicator& communicator) {
                      host::ThreadedQueue queue;
                      meet(communicator, queue);
                      if (communicator.rank() == 2) {
                          queue.enqueue([] { throw std::runtime_error("the worker failed"); });
                          queue.synchronise();
                      }
                      if (communicator.rank() == 2) {
                          meet(communicator, queue);
                          report.expect(false, "the failure of the worker was lost");
                      } else {
                          std::string const text =
                              message_of<Aborted>([&] { meet(communicator, queue); });
                          report.expect(contains(text, "rank 2: the worker failed"), text);
                      }
                  }),
        "the worker failed");
    report.check();
}

TEST_CASE("A rank that leaves delays no other rank: peers that need it get Aborted") {
    Report report;
    CHECK_THROWS_AS(run_ranks(3, options,
                              [&](LoopbackCommunicator& communicator) {
                                  host::InlineQueue queue;
                                  if (communicator.rank() == 1) {
                                      return;
                                  }
                                  std::string const text =
                                      message_of<Aborted>([&] { meet(communicator, queue); });
                                  report.expect(contains(text, "rank 1 finished and left"), text);
                                  meet(communicator, queue);
                              }),
                    Aborted);
    report.check();

    auto group = LoopbackCommunicator::make_group(2, options);
    host::InlineQueue queue;
    { LoopbackCommunicator const leaving = std::move(group[1]); }
    CHECK_THROWS_WITH(meet(group[0], queue), test::contains_text("rank 1 left the group"));
}

TEST_CASE("Ranks that end after their last collective do not disturb others") {
    for (int round = 0; round < 200; ++round) {
        CHECK_NOTHROW(run_ranks(4, options, [&](LoopbackCommunicator& communicator) {
            host::InlineQueue queue;
            meet(communicator, queue);
        }));
    }
}

TEST_CASE("The first cause is kept, and a new group works") {
    host::InlineQueue queue;
    auto group = LoopbackCommunicator::make_group(1, options);
    group[0].abort("the first cause");
    group[0].abort("the second cause");
    for (int call = 0; call < 3; ++call) {
        CHECK_THROWS_WITH(meet(group[0], queue), test::contains_text("the first cause"));
    }
    auto other = LoopbackCommunicator::make_group(1, options);
    CHECK_NOTHROW(meet(other[0], queue));
}

TEST_CASE("A record keeps its first cause; only a final cause replaces a provisional one") {
    using detail::FailureKind;
    detail::FailureRecord record;
    CHECK_FALSE(record.has_failed());
    record.fail(FailureKind::aborted, "an engine was destroyed", true);
    record.fail(FailureKind::mismatch, "another engine was destroyed", true);
    CHECK(record.cause() == "an engine was destroyed");
    CHECK(record.is_provisional());
    record.fail(FailureKind::mismatch, "the real cause", false);
    record.fail(FailureKind::aborted, "a later cause", false);
    record.fail(FailureKind::aborted, "a later provisional cause", true);
    CHECK(record.cause() == "the real cause");
    CHECK(record.kind() == FailureKind::mismatch);
    CHECK(record.is_final());
    CHECK(record.has_failed());
}

TEST_CASE("A provisional cause is replaced by a better one and counts if there is none") {
    Report report;
    CHECK_THROWS_WITH(run_ranks(2, options,
                                [&](LoopbackCommunicator& communicator) {
                                    host::InlineQueue queue;
                                    if (communicator.rank() == 0) {
                                        communicator.abort(
                                            "an engine was destroyed",
                                            true); // as by a destructor during unwinding
                                        throw std::runtime_error("the real cause");
                                    }
                                    std::string const text =
                                        message_of<Aborted>([&] { meet(communicator, queue); });
                                    report.expect(contains(text, "the real cause"), text);
                                }),
                      "the real cause");
    report.check();

    auto group = LoopbackCommunicator::make_group(2, options);
    host::InlineQueue queue;
    group[1].abort("an engine was destroyed", true);
    CHECK_THROWS_WITH(meet(group[0], queue), test::contains_text("an engine was destroyed"));
}

} // namespace zero::test::abort_test
