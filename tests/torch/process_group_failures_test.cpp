#include "gloo_fixture.hpp"

#include "comm/report.hpp"

#include <zero/core/error.hpp>
#include <zero/host/inline_queue.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace zero::test::process_group_failures_test {

namespace {

using torch::ProcessGroupCommunicator;
using torch::ProcessGroupOptions;

void add(ProcessGroupCommunicator& communicator, char const* what, std::size_t count = 1) {
    host::InlineQueue queue;
    std::array<std::int64_t, 2> values{1, 1};
    communicator.all_reduce_integers(values.data(), count, IntegerReduction::sum, &queue,
                                     CollectiveTag{what, 7});
}

/// Returns the message of the `E` that a collective with this tag throws.
template <class E>
std::string failure_of(ProcessGroupCommunicator& communicator, char const* what,
                       std::size_t count = 1) {
    return message_of<E>([&] { add(communicator, what, count); });
}

bool shares_memory = true; ///< of the communicators that `run` makes

/// Runs `body(communicator)` on each rank.
template <class Change, class Body>
void run(int world, Change const& change, Body const& body) {
    GlooFixture::run_groups(world, [&](int rank, auto const& group, auto const& store) {
        ProcessGroupOptions options = GlooFixture::options(store);
        options.shares_memory = shares_memory;
        change(options, rank);
        ProcessGroupCommunicator communicator(group, options);
        body(communicator);
    });
}

/// The number of the first collective after the construction of a communicator.
std::string first() {
    return shares_memory ? "4" : "2";
}

void keep(ProcessGroupOptions& /*options*/, int /*rank*/) {}

/// A store whose host has ended.
class LostStore : public c10d::HashStore {
public:
    using c10d::HashStore::check;
    bool check(std::vector<std::string> const& /*keys*/) override {
        throw std::runtime_error("connection lost");
    }
};

} // namespace

TEST_CASE("A rank that does not arrive is named by TimedOut") {
    shares_memory = GENERATE(true, false);
    Report report;
    std::atomic<int> timed_out{0};
    auto const brief = [](ProcessGroupOptions& options, int) {
        options.time_out = std::chrono::milliseconds(600);
    };
    run(3, brief, [&](ProcessGroupCommunicator& communicator) {
        if (communicator.rank() == 2) {
            GlooFixture::meet(3);
            std::string const text = failure_of<Aborted>(communicator, "late");
            report.expect(contains(text, "waited 600 ms for rank 2"), text);
            return;
        }
        std::string text;
        try {
            add(communicator, "late");
        } catch (TimedOut const& error) {
            ++timed_out;
            text = error.what();
        } catch (Aborted const& error) {
            text = error.what();
        }
        report.expect(
            contains(text, "waited 600 ms for rank 2, in collective " + first() + ", all-reduce")
                && contains(text, "'late 7'"),
            text);
        std::string const after = failure_of<Aborted>(communicator, "after");
        report.expect(contains(after, "waited 600 ms"), after);
        GlooFixture::meet(3);
    });
    report.check();
    CHECK(timed_out >= 1);
}

TEST_CASE("A time-out without a store, or with one that is lost, still ends the rank") {
    shares_memory = GENERATE(true, false);
    for (bool const has_store : {false, true}) {
        Report report;
        auto const brief = [&](ProcessGroupOptions& options, int) {
            options.time_out = std::chrono::milliseconds(300);
            options.store = nullptr;
            if (has_store) {
                options.store = c10::make_intrusive<LostStore>();
            }
        };
        run(2, brief, [&](ProcessGroupCommunicator& communicator) {
            if (communicator.rank() == 0) {
                std::string const text = failure_of<TimedOut>(communicator, "late");
                report.expect(contains(text, has_store
                                                 ? "for its peers, in collective " + first()
                                                 : "torch::ProcessGroupOptions::store is null"),
                              text);
            }
            GlooFixture::meet(2);
        });
        report.check();
    }
}

TEST_CASE("A rank that leaves ends the others, which name it") {
    Report report;
    GlooFixture::run_groups(2, [&](int rank, auto const& group, auto const& store) {
        {
            ProcessGroupCommunicator communicator(group, GlooFixture::options(store));
            add(communicator, "both");
            if (rank == 0) {
                std::string const text = failure_of<Aborted>(communicator, "alone");
                report.expect(contains(text, "rank 1 left the group after its collective 4, and "
                                             "rank 0 waits in collective 5"),
                              text);
            }
        }
        GlooFixture::meet(2); // the group of rank 1 lives on
    });
    report.check();
}

TEST_CASE("Ranks that call different collectives get CollectiveMismatch, and Aborted afterwards") {
    shares_memory = GENERATE(true, false);
    Report report;
    run(3, keep, [&](ProcessGroupCommunicator& communicator) {
        bool const is_odd = communicator.rank() == 1;
        std::string const text =
            failure_of<CollectiveMismatch>(communicator, "sum", is_odd ? 2 : 1);
        report.expect(
            contains(text, "rank 0 called all-reduce of integers of 1 int64 ('sum 7'")
                && contains(text, "rank 1 called all-reduce of integers of 2 int64 ('sum 7'"),
            text);
        std::string const after = failure_of<Aborted>(communicator, "sum");
        report.expect(contains(after, "rank 0 called"), "after a mismatch: " + after);
    });
    run(2, keep, [&](ProcessGroupCommunicator& communicator) {
        std::string const text = failure_of<CollectiveMismatch>(
            communicator, communicator.rank() == 0 ? "first" : "second");
        report.expect(contains(text, "'first 7'") && contains(text, "'second 7'"), text);
    });
    report.check();
}

TEST_CASE("A provisional cause gives way to a better one, also on the other ranks") {
    shares_memory = GENERATE(true, false);
    Report report;
    run(2, keep, [&](ProcessGroupCommunicator& communicator) {
        if (communicator.rank() == 0) {
            communicator.abort("the engine failed", true);
            communicator.abort("the disk is full");
            communicator.abort("a consequence");
        }
        std::string const text = failure_of<Aborted>(communicator, "sum");
        report.expect(contains(text, "the group was aborted: the disk is full"), text);
    });
    report.check();
}

TEST_CASE("A communicator that is destroyed by an exception ends the others") {
    Report report;
    GlooFixture::run_groups(2, [&](int rank, auto const& group, auto const& store) {
        try {
            ProcessGroupCommunicator communicator(group, GlooFixture::options(store));
            if (rank == 1) {
                throw std::runtime_error("not the communicator's");
            }
            std::string const text = failure_of<Aborted>(communicator, "sum");
            report.expect(contains(text, "rank 1 left the group while an exception unwound"), text);
        } catch (std::runtime_error const& error) {
            report.expect(rank == 1, error.what());
        }
        GlooFixture::meet(2);
    });
    report.check();
}

TEST_CASE("Another thread may abort a rank that waits") {
    shares_memory = GENERATE(true, false);
    Report report;
    run(2, keep, [&](ProcessGroupCommunicator& communicator) {
        if (communicator.rank() == 0) {
            std::thread other([&] { communicator.abort("the user gave up"); });
            std::string const text = failure_of<Aborted>(communicator, "sum");
            report.expect(contains(text, "the user gave up"), text);
            other.join();
        }
        GlooFixture::meet(2);
    });
    report.check();
}

TEST_CASE("A process group carries a communicator after an earlier one, whose records it does not "
          "find") {
    Report report;
    GlooFixture::run_groups(2, [&](int, auto const& group, auto const& store) {
        for (int turn = 0; turn < 2; ++turn) {
            {
                ProcessGroupCommunicator communicator(group, GlooFixture::options(store));
                add(communicator, "sum");
                GlooFixture::meet(2);
                communicator.abort("the end of turn " + std::to_string(turn));
                std::string const text = failure_of<Aborted>(communicator, "sum");
                report.expect(contains(text, "the end of turn " + std::to_string(turn)), text);
            }
            GlooFixture::meet(2);
        }
    });
    report.check();
}

} // namespace zero::test::process_group_failures_test
