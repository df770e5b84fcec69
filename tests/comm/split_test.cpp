#include "split_conformance.hpp"

#include <zero/comm/detail/loopback_group.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/core/host_memory_resource.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

// Groups that were split from a loopback group. The conformance suite also passes for them.

namespace zero::test::split_test {

namespace {

constexpr LoopbackOptions options{.time_out = std::chrono::seconds(60)};

/// The group without rank 0, in reverse order. Rank 0 ends at once.
struct SplitFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world + 1, options, [&](LoopbackCommunicator& parent) {
            LoopbackCommunicator part = parent.split(parent.rank() == 0 ? 7 : -3, -parent.rank());
            if (parent.rank() != 0) {
                body(part);
            }
        });
    }
};

struct WholeFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world, options, [&](LoopbackCommunicator& parent) { body(parent); });
    }
};

std::int64_t sum(LoopbackCommunicator& communicator, std::int64_t value) {
    host::InlineQueue queue;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue, {"sum", 0});
    return value;
}

} // namespace

TEST_CASE("A split group sums, gathers, broadcasts and reduces integers like any other") {
    check_sums_of<SplitFixture, float>();
    check_sums_of<SplitFixture, bfloat16>();
    check_gathers_of<SplitFixture, float, std::int64_t, unsigned char>();
    check_broadcasts_of<SplitFixture, float16>();
    check_integer_reductions<SplitFixture>();
    check_number_sums<SplitFixture>();
    check_abort<SplitFixture>();
}

TEST_CASE("A loopback group passes the suite of groups that can be split, and so do its parts") {
    check_split<WholeFixture>();
    check_abort_of_parts<WholeFixture>();
    check_split<SplitFixture>();
    check_abort_of_parts<SplitFixture>();
}

TEST_CASE("Ranks of one color form a group in the order of their keys, then of their ranks") {
    Report report;
    run_ranks(6, options, [&](LoopbackCommunicator& parent) {
        int const rank = parent.rank();
        LoopbackCommunicator part = parent.split(rank % 2, rank < 2 ? 5 : 1);
        // even: 2 and 4, then 0; odd: 3 and 5, then 1
        report.expect(part.size() == 3, "the size of a part");
        report.expect(part.rank() == (rank < 2 ? 2 : rank / 2 - 1),
                      "the new rank of " + std::to_string(rank));
        report.expect(sum(part, rank) == (rank % 2 == 0 ? 6 : 9), "the sum of a part");
        report.expect(sum(parent, rank) == 15, "the sum of all");
        LoopbackCommunicator alone = part.split(part.rank(), 0);
        report.expect(alone.size() == 1 && sum(alone, rank) == rank, "a part of a part");
    });
    report.check();
}

TEST_CASE("A destroyed part does not end the group that it was split from, nor the reverse") {
    Report report;
    auto group = LoopbackCommunicator::make_group(2, options);
    std::vector<std::optional<LoopbackCommunicator>> parents;
    parents.emplace_back(std::move(group[0]));
    parents.emplace_back(std::move(group[1]));
    zero::detail::run_threads(
        2,
        [&](std::size_t rank) {
            auto& parent = *parents[rank];
            { LoopbackCommunicator const part = parent.split(0, 0); }
            report.expect(sum(parent, 1) == 2, "the parent after its part");
            LoopbackCommunicator part = parent.split(0, 0);
            sum(part, 1);
            parents[rank].reset();
            report.expect(sum(part, 1) == 2, "the part after its parent");
        },
        [](std::size_t, std::string_view, bool) {});
    report.check();
}

TEST_CASE("An abort of a group reaches its parts, and the abort of a part reaches the others") {
    for (bool const is_of_part : {false, true}) {
        Report report;
        run_ranks(4, options, [&](LoopbackCommunicator& parent) {
            LoopbackCommunicator part = parent.split(parent.rank() / 2, 0);
            sum(parent, 1);
            if (parent.rank() == 3) {
                (is_of_part ? part : parent).abort("rank 3 has a reason");
            }
            if (parent.rank() != 0 || !is_of_part) {
                std::string const text = message_of<Aborted>([&] {
                    for (int call = 0; call < 3; ++call) {
                        sum(part, 1); // of ranks 0 and 1: until the abort arrives
                        sum(parent, 1);
                    }
                });
                report.expect(contains(text, "rank 3 has a reason"), text);
            } else {
                std::string const text = message_of<Aborted>([&] { sum(parent, 1); });
                report.expect(contains(text, "rank 3 has a reason"), text);
            }
        });
        report.check();
    }
}

TEST_CASE("A rank that does not split is a mismatch or a time-out, which reaches all parts") {
    Report report;
    auto const failure = outcome_of([&] {
        run_ranks(2, options, [&](LoopbackCommunicator& parent) {
            if (parent.rank() == 0) {
                (void)parent.split(0, 0);
            } else {
                sum(parent, 1);
            }
        });
    });
    CHECK(contains(failure.message, "'split of the group 0'"));
    std::atomic<bool> is_over{false};
    run_ranks(3, {.time_out = std::chrono::milliseconds(50)}, [&](LoopbackCommunicator& parent) {
        LoopbackCommunicator part = parent.split(parent.rank() == 2 ? 1 : 0, 0);
        std::string const text = message_of<CommunicatorError>([&] {
            while (parent.rank() == 1 && !is_over) { // stays away until the others have given up
                std::this_thread::yield();
            }
            if (parent.rank() == 0) {
                sum(part, 1);
            } else {
                (void)parent.split(0, 0);
            }
        });
        is_over = true;
        report.expect(contains(text, "50 ms for rank "), text);
    });
    report.check();
}

TEST_CASE("Ranks that wait for each other in different groups get CollectiveMismatch with both "
          "calls, long before the time-out") {
    Report report;
    run_ranks(5, options, [&](LoopbackCommunicator& parent) {
        int const rank = parent.rank();
        LoopbackCommunicator part = parent.split(rank / 2, 0);
        sum(part, 1);
        auto const begin = std::chrono::steady_clock::now();
        std::string const text = message_of<CollectiveMismatch>([&] {
            // 0 waits for 1, 1 for 3, 3 for 2, and 2 and 4 for all
            rank == 0 || rank == 3 ? sum(part, 1) : sum(parent, 1);
        });
        report.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30), "late");
        report.expect(contains(text, "rank 1 waits in the collective 'sum 0' (5 ranks) for rank 0, "
                                     "which waits in the collective 'sum 0' (2 ranks)"),
                      text);
        std::string const later = message_of<Aborted>([&] { sum(part, 1); });
        report.expect(contains(later, "which waits in"), later);
    });
    report.check();
}

TEST_CASE("A rank is waited for while it computes, and while a thread may still call for it") {
    for (bool const has_called : {false, true}) {
        Report report;
        run_ranks(3, options, [&](LoopbackCommunicator& parent) {
            LoopbackCommunicator other = parent.split(0, 0);
            auto const call = [&] { report.expect(sum(other, 1) == 3, "the sum"); };
            std::thread second; // of ranks 0 and 1, whose first threads wait for rank 2
            if (parent.rank() != 2) {
                second = std::thread([&] {
                    if (has_called) {
                        call();
                    }
                    std::this_thread::sleep_for(4 * detail::Rendezvous::look);
                    call();
                });
            } else {
                if (has_called) {
                    call();
                }
                call();
            }
            report.expect(sum(parent, 1) == 3, "the sum of all");
            if (second.joinable()) {
                second.join();
            }
        });
        report.check();
    }
}

TEST_CASE("A rank that sees a failure of one group tells the others before it throws") {
    detail::LoopbackFamily family(2);
    detail::Rendezvous parent(2, std::chrono::milliseconds(1));
    detail::Rendezvous part(2, std::chrono::milliseconds(1));
    family.add(parent);
    family.add(part);
    part.leave("rank 0 left"); // not a failure, so the others are not aborted
    family.spread(part);
    CHECK(parent.cause().empty());

    // Only its own group knows of a time-out until the rank that sees it tells the others.
    detail::Rendezvous other(2, std::chrono::milliseconds(1));
    family.add(other);
    CHECK_THROWS_AS(parent.enter(0, {"split of the group"}), TimedOut);
    CHECK(other.cause().empty());
    family.spread(parent);
    detail::Rendezvous later(2, std::chrono::milliseconds(1));
    family.add(later);
    for (detail::Rendezvous const* const member : {&parent, &other, &later}) {
        CHECK(contains(member->cause(), "1 ms for rank 1 in the collective 'split of the group"));
    }
    CHECK(part.cause() == "rank 0 left");
}

TEST_CASE("After a time-out or an abort in one group, a call of another fails at once") {
    detail::LoopbackGroup parent(2, {.time_out = std::chrono::milliseconds(1)});
    detail::LoopbackGroup part(1, {}, parent.family());
    part.enter(0);
    part.pass();
    CHECK_THROWS_AS(parent.enter(1), TimedOut);
    CHECK_THROWS_AS(parent.enter(0), Aborted);
    CHECK_THROWS_AS(part.enter(0), Aborted);
}

TEST_CASE(
    "Scratch memory comes from the resource of the group, and is what the communicator says") {
    HostMemoryResource memory;
    {
        auto group = LoopbackCommunicator::make_group(3, {.memory = &memory});
        CHECK(group[0].scratch_bytes(0) == 512);
        CHECK(memory.allocated_bytes(BufferKind::communicator) == 3 * 512);
        CHECK(memory.allocated_bytes() == 3 * 512);
    }
    CHECK(memory.allocated_bytes() == 0);
}

} // namespace zero::test::split_test
