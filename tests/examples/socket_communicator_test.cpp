#include "comm/conformance.hpp"
#include "guides/socket_communicator.hpp"
#include "guides/tcp_links.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/host/threaded_queue.hpp>

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// The communicator of docs/guides/own_communicator.md. Here its ranks are threads, which makes no
// difference to sockets.

namespace zero::test::socket_communicator_test {

namespace {

struct SocketFixture {
    static SocketOptions options() { return {.time_out = std::chrono::seconds(60)}; }

    template <class Body>
    static void run(int world, Body const& body) {
        run(world, options(), body);
    }

    template <class Body>
    static void run(int world, SocketOptions const& options, Body const& body) {
        auto const links = connect_ranks(world);
        run_linked(
            world, options, [&](std::size_t rank) { return links[rank]; }, body);
    }

    /// @param links_of(rank) is called on the thread of the rank
    template <class Links, class Body>
    static void run_linked(int world, SocketOptions const& options, Links const& links_of,
                           Body const& body) {
        met = std::make_unique<std::barrier<>>(world);
        auto const count = static_cast<std::size_t>(world);
        std::vector<std::exception_ptr> failures(count);
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < count; ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    SocketCommunicator communicator(static_cast<int>(rank), links_of(rank),
                                                    options);
                    run_rank(communicator, body);
                } catch (...) {
                    failures[rank] = std::current_exception();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (std::exception_ptr const& failure : failures) {
            if (failure) std::rethrow_exception(failure);
        }
    }

    static void meet(int) { met->arrive_and_wait(); }

    inline static std::unique_ptr<std::barrier<>> met;
};

/// Has scratch memory for one element of each rank, so that a sum takes many rounds.
struct InRounds {
    template <class Body>
    static void run(int world, Body const& body) {
        SocketOptions options = SocketFixture::options();
        options.scratch_bytes = 1;
        SocketFixture::run(world, options, body);
    }
};

/// Ranks that connect to each other over TCP, as on several machines.
struct TcpFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        std::vector<std::unique_ptr<Listener>> listeners;
        std::vector<Address> addresses;
        for (int rank = 0; rank < world; ++rank) {
            listeners.push_back(std::make_unique<Listener>());
            addresses.push_back({"localhost", listeners.back()->port()});
        }
        auto const links_of = [&](std::size_t rank) {
            return connect_ranks(static_cast<int>(rank), addresses, *listeners[rank],
                                 std::chrono::seconds(60));
        };
        SocketFixture::run_linked(world, SocketFixture::options(), links_of, body);
    }
    static void meet(int world) { SocketFixture::meet(world); }
};

struct CheckedFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        SocketFixture::run(world, [&](SocketCommunicator& transport) {
            Checked<SocketCommunicator> communicator(transport);
            body(communicator);
        });
    }
};

std::vector<std::size_t> equal_cuts(int world, std::size_t elements) {
    return cuts_of(std::vector<std::size_t>(static_cast<std::size_t>(world), elements));
}

} // namespace

TEST_CASE("Sockets sum float in rank order") {
    check_sums_of<SocketFixture, float>();
}

TEST_CASE("Sockets sum bfloat16 and float16 in rank order and round once") {
    check_sums_of<SocketFixture, bfloat16>();
    check_sums_of<SocketFixture, float16>();
}

TEST_CASE("Sockets sum the same in many rounds as in one") {
    check_sums_of<InRounds, bfloat16>();
    check_integer_reductions<InRounds>();
    check_number_sums<InRounds>();
}

TEST_CASE("Sockets gather every type") {
    check_gathers_of<SocketFixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                     unsigned char>();
}

TEST_CASE("Sockets broadcast every type") {
    check_broadcasts_of<SocketFixture, float, bfloat16, float16, std::int64_t, unsigned char>();
}

TEST_CASE("Sockets reduce integers exactly, and sum single numbers") {
    check_integer_reductions<SocketFixture>();
    check_number_sums<SocketFixture>();
}

TEST_CASE("Sockets release all ranks when one rank aborts") {
    check_abort<SocketFixture>();
}

TEST_CASE("A checked communicator over sockets does the same") {
    check_sums_of<CheckedFixture, float>();
}

TEST_CASE("Sockets of TCP do the same") {
    check_sums_of<TcpFixture, float>();
    check_gathers_of<TcpFixture, std::int64_t>();
    check_abort<TcpFixture>();
}

TEST_CASE("A rank whose peers do not call, or do not listen, says which are missing") {
    Listener const listener;
    std::vector<Address> const addresses{{"localhost", listener.port()}, {"localhost", 1}};
    CHECK_THROWS_WITH(connect_ranks(0, addresses, listener, std::chrono::seconds(0)),
                      contains_text("2 connections of higher ranks are missing on rank 0"));
    std::vector<Address> const closed{{"localhost", 1}, {"localhost", listener.port()}};
    CHECK_THROWS_WITH(connect_ranks(1, closed, listener, std::chrono::seconds(0)),
                      contains_text("no rank listens at localhost:1"));
}

TEST_CASE("Extents that are larger than what a socket holds reach all ranks") {
    Report report;
    SocketFixture::run(3, [&](SocketCommunicator& communicator) {
        std::size_t const elements = 1'000'000;
        auto const cuts = equal_cuts(3, elements);
        std::vector<float> values(3 * elements, static_cast<float>(communicator.rank() + 1));
        host::InlineQueue queue;
        communicator.all_reduce(static_cast<float const*>(values.data()), values.data(), cuts,
                                &queue);
        report.expect(values == std::vector<float>(3 * elements, 6.0F), "1 + 2 + 3");
    });
    report.check();
}

TEST_CASE("More collectives than the ring has slots may be on their way, on two queues in turn") {
    Report report;
    SocketFixture::run(2, [&](SocketCommunicator& communicator) {
        std::vector<std::int64_t> values(300, communicator.rank() + 1);
        host::ThreadedQueue first;
        host::ThreadedQueue second;
        for (std::size_t i = 0; i < values.size(); ++i) {
            communicator.all_reduce_integers(&values[i], 1, IntegerReduction::sum,
                                             i % 3 == 0 ? &first : &second);
        }
        first.synchronise();
        second.synchronise();
        report.expect(values == std::vector<std::int64_t>(300, 3), "1 + 2");
    });
    report.check();
}

TEST_CASE("A rank that does not arrive is named when the time is over") {
    Report report;
    std::latch ended(1);
    SocketOptions const options{.time_out = std::chrono::milliseconds(20)};
    SocketFixture::run(2, options, [&](SocketCommunicator& communicator) {
        host::InlineQueue queue;
        std::int64_t value = 1;
        auto const call = [&] {
            communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        };
        if (communicator.rank() == 0) {
            std::string const text = message_of<TimedOut>(call);
            report.expect(contains(text, "rank 0 waited 20 ms for rank 1 in collective 1"), text);
            ended.count_down();
        } else {
            ended.wait();
            std::string const text = message_of<Aborted>(call);
            report.expect(contains(text, "the group was aborted: rank 0 waited 20 ms for rank 1"),
                          text);
        }
    });
    report.check();
}

TEST_CASE("A rank that leaves is named on all ranks that need it, and its last bytes arrive") {
    Report report;
    SocketFixture::run(3, [&](SocketCommunicator& communicator) {
        host::InlineQueue queue;
        std::int64_t value = communicator.rank() == 1 ? 7 : 0;
        communicator.broadcast(&value, 1, 1, &queue); // rank 1 sends, and may leave at once
        report.expect(value == 7, "the broadcast");
        if (communicator.rank() == 1) return;
        std::string const text = message_of<Aborted>(
            [&] { communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue); });
        report.expect(contains(text, "rank 1 left the group"), text);
    });
    report.check();
}

TEST_CASE("A better cause replaces a provisional one, and no other") {
    Report report;
    SocketFixture::run(2, [&](SocketCommunicator& communicator) {
        host::InlineQueue queue;
        std::int64_t value = 1;
        if (communicator.rank() == 0) {
            communicator.abort("an engine failed", true);
            communicator.abort("another engine failed", true);
            communicator.abort("the data are missing");
            communicator.abort("the second rank failed as well");
        }
        std::string const text = message_of<Aborted>(
            [&] { communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue); });
        report.expect(contains(text, "the group was aborted: the data are missing"), text);
    });
    report.check();
}

TEST_CASE("An abort of another thread releases a rank that waits") {
    Report report;
    SocketFixture::run(2, [&](SocketCommunicator& communicator) {
        host::InlineQueue queue;
        std::int64_t value = 1;
        if (communicator.rank() == 1) {
            SocketFixture::meet(2); // until rank 0 has been released
            return;
        }
        std::thread other([&] { communicator.abort("the user pressed a key"); });
        std::string const text = message_of<Aborted>(
            [&] { communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue); });
        other.join();
        report.expect(contains(text, "the user pressed a key"), text);
        SocketFixture::meet(2);
    });
    report.check();
}

TEST_CASE("Invalid arguments are refused before anything is sent") {
    Report report;
    SocketFixture::run(2, [&](SocketCommunicator& communicator) {
        host::InlineQueue queue;
        std::vector<float> values(4);
        float const* const send = values.data();
        auto const refuses = [&](std::vector<std::size_t> const& cuts, float const* from) {
            return message_of<InvalidArgument>(
                [&] { communicator.all_reduce(from, values.data(), cuts, &queue, {"sums"}); });
        };
        report.expect(contains(refuses({0, 4}, send), "'sums' needs W + 1"), "one cut too few");
        report.expect(contains(refuses({0, 3, 2}, send), "'sums' needs W + 1"), "descending");
        report.expect(contains(refuses({1, 2, 4}, send), "'sums' needs W + 1"), "not from 0");
        report.expect(contains(refuses({0, 2, 4}, nullptr), "'sums' needs memory"), "no memory");
        report.expect(contains(message_of<InvalidArgument>(
                                   [&] { communicator.broadcast(values.data(), 4, 2, &queue); }),
                               "the root of a broadcast is a rank"),
                      "root");
        std::vector<std::size_t> const cuts{0, 2, 4};
        values.assign(4, 1.0F);
        communicator.all_reduce(send, values.data(), cuts, &queue);
        report.expect(values == std::vector<float>(4, 2.0F), "the group still works");
    });
    report.check();
}

} // namespace zero::test::socket_communicator_test
