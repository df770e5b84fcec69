// After a collective has returned or thrown and the rank's queue is drained, no peer reads its
// memory. The address sanitizer detects more errors here than the assertions.

#include "host/queue_kinds.hpp"
#include "report.hpp"
#include "values.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace zero::test::lifetime_test {

namespace {

constexpr LoopbackOptions options{.time_out = std::chrono::seconds(60)};

/// Makes copies on one queue fail after a number of them.
struct FaultyBackend : HostBackend {
    inline static std::atomic<host::Queue*> failing_queue{nullptr};
    inline static std::atomic<int> copies_left{0};

    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        if (queue == failing_queue && --copies_left < 0) {
            throw QueueFull("zero: no room");
        }
        HostBackend::copy_bytes(queue, out, in, bytes);
    }
};
using FaultyLoopback = Loopback<FaultyBackend>;

} // namespace

TEMPLATE_TEST_CASE(
    "A rank may free its memory after draining its queue, however slow its peers are", "",
    InlineKind, ThreadedKind, DelayingKind) {
    Report report;
    run_ranks(4, options, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        auto const cuts = cuts_of({700, 0, 301, 99});
        for (std::size_t round = 0; round < 30; ++round) {
            std::vector<float> send = values_of<float>(communicator.rank(), cuts.back(), round);
            std::vector<float> received(cuts.back());
            auto const queue = rank == 0 ? DelayingKind::make(round)
                                         : TestType::make(round); // rank 0 is the slow one
            communicator.all_reduce(static_cast<float const*>(send.data()), received.data(), cuts,
                                    queue.get(), {"sums", round});
            queue->synchronise();
            send.assign(send.size(), -1.0F);
            report.expect(equal_bits(received, sums_of<float>(4, 0, cuts.back(), round)),
                          "a peer's memory changed under a sum");
        } // destroys the queue, then frees the memory
    });
    report.check();
}

TEMPLATE_TEST_CASE(
    "A rank that unwinds after a collective frees no memory that its peers still read", "",
    ThreadedKind, DelayingKind) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Report report;
        CHECK_THROWS_WITH(
            run_ranks(4, options,
                      [&](LoopbackCommunicator& communicator) {
                          auto const cuts = cuts_of({512, 512, 512, 512});
                          std::vector<float> const send =
                              values_of<float>(communicator.rank(), cuts.back(), seed);
                          std::vector<float> received(512);
                          auto const queue = communicator.rank() == 0 ? DelayingKind::make(seed)
                                                                      : TestType::make(seed);
                          communicator.reduce_scatter(send.data(), received.data(), cuts,
                                                      queue.get(), {"sums", 0});
                          if (communicator.rank() == 1) {
                              throw std::runtime_error("unwinding");
                          }
                          queue->synchronise();
                          auto const begin = cuts[static_cast<std::size_t>(communicator.rank())];
                          report.expect(
                              equal_bits(received, sums_of<float>(4, begin, begin + 512, seed)),
                              "a sum over the memory of a rank that unwinds");
                      }),
            "unwinding");
        report.check();
    }
}

TEST_CASE("A collective that fails half-way still waits for its peers") {
    for (int round = 0; round < 20; ++round) {
        int const copies = round % 4;
        Report report;
        CHECK_THROWS_AS(
            run_ranks<FaultyLoopback>(
                4, options,
                [&](FaultyLoopback& communicator) {
                    auto const cuts = cuts_of({400, 300, 200, 100});
                    auto const rank = static_cast<std::size_t>(communicator.rank());
                    std::vector<float> const own =
                        values_of<float>(communicator.rank(), cuts[rank + 1] - cuts[rank], 5);
                    std::vector<float> received(cuts.back());
                    // The copies that the failing rank enqueued are late: the peers must wait for
                    // them.
                    host::DelayingQueue queue(static_cast<std::uint64_t>(round),
                                              rank == 2 ? 3'000 : 20);
                    if (rank == 2) {
                        FaultyBackend::copies_left = copies;
                        FaultyBackend::failing_queue = &queue;
                    }
                    try {
                        communicator.all_gather(own.data(), received.data(), cuts, &queue,
                                                {"extents", 0});
                        report.expect(false, "nothing was thrown");
                    } catch (QueueFull const&) {
                        report.expect(rank == 2, "QueueFull on a rank whose queue is not full");
                        throw;
                    } catch (Aborted const&) {
                        report.expect(rank != 2, "the failing rank got Aborted");
                    }
                    queue.synchronise();
                    report.expect(equal_bits(std::vector<float>(received.begin() + 700,
                                                                received.begin() + 900),
                                             values_of<float>(2, 200, 5)),
                                  "the extent of the failing rank");
                }),
            QueueFull);
        FaultyBackend::failing_queue = nullptr;
        report.check();
    }
}

TEST_CASE("A communicator and its queue may be destroyed in either order") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        std::vector<float> const values(64, 1.0F);
        std::vector<float> sums(64);
        auto const cuts = cuts_of({64});
        std::optional<std::vector<LoopbackCommunicator>> group(
            LoopbackCommunicator::make_group(1, options));
        auto queue = DelayingKind::make(seed);
        for (int call = 0; call < 20; ++call) {
            group->front().reduce_scatter(values.data(), sums.data(), cuts, queue.get());
        }
        if (seed % 2 == 0) {
            group.reset(); // pending commands use its tables
        }
        queue.reset();
        CHECK(sums == values);
    }
}

TEST_CASE("A checked communicator may be destroyed after an exception while the queue still runs "
          "commands") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        auto const queue = DelayingKind::make(seed);
        auto group = LoopbackCommunicator::make_group(1, options);
        std::int64_t value = 1;
        group[0].abort("called off");
        {
            Checked<LoopbackCommunicator> checked(group[0]);
            queue->enqueue([] {
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }); // makes the command slow; does not order anything
            CHECK_THROWS_AS(
                checked.all_reduce_integers(&value, 1, IntegerReduction::sum, queue.get()),
                Aborted);
        }
        queue->synchronise();
        CHECK(value == 1);
    }
}

TEST_CASE("A rank gets ahead of its queue only as far as the queue has capacity") {
    Report report;
    run_ranks(6, options, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const cuts = cuts_of({1, 1, 1, 1, 1, 1});
        std::vector<float> values(6, 0.0F);
        values[rank] = static_cast<float>(rank);
        host::DelayingQueue queue(rank, 50);
        for (std::size_t call = 0; call < 700;
             ++call) { // up to 16 commands each; the ring holds 8192
            communicator.all_gather(static_cast<float const*>(values.data() + rank), values.data(),
                                    cuts, &queue, {"extents", call});
        }
        queue.synchronise();
        report.expect(values == std::vector<float>{0, 1, 2, 3, 4, 5}, "values after many gathers");
    });
    report.check();
}

} // namespace zero::test::lifetime_test
