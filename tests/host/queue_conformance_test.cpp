// The guarantees of every kind of queue.

#include "queue_kinds.hpp"
#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace zero::test::queue_conformance_test {

using test::DelayingKind;
using test::InlineKind;
using test::ThreadedKind;
using test::ThreadlessKind;

TEMPLATE_TEST_CASE("Commands run in the order in which they were enqueued", "", InlineKind,
                   ThreadlessKind, ThreadedKind, DelayingKind) {
    std::vector<int> seen;
    auto const queue = TestType::make(1);
    for (int i = 0; i < 500; ++i) {
        queue->enqueue([&seen, i] { seen.push_back(i); });
    }
    queue->synchronise();
    REQUIRE(seen.size() == 500);
    for (int i = 0; i < 500; ++i) {
        REQUIRE(seen[static_cast<std::size_t>(i)] == i);
    }
}

TEMPLATE_TEST_CASE("An event is complete once every command before it has run, whatever follows",
                   "", InlineKind, ThreadlessKind, ThreadedKind, DelayingKind) {
    auto const queue = TestType::make(2);
    int value = 0;
    queue->enqueue([&value] { value = 7; });
    host::Event const event = queue->record();
    std::atomic<bool> is_released{!TestType::is_threaded}; // an inline queue would wait for itself
    queue->enqueue([&is_released] {
        while (!is_released.load()) {
            std::this_thread::yield();
        }
    });
    event.synchronise();
    CHECK(event.is_complete());
    CHECK(value == 7);
    is_released = true;
    queue->synchronise();
}

TEMPLATE_TEST_CASE("Commands after a wait see the writes of another queue before the event", "",
                   InlineKind, ThreadlessKind, ThreadedKind, DelayingKind) {
    auto const readers = TestType::make(3);
    auto const writers = DelayingKind::make(4);
    std::array<int, 100> written{};
    std::array<int, 100> read{};
    for (std::size_t i = 0; i < 100; ++i) {
        writers->enqueue([&written, i] { written[i] = static_cast<int>(i) + 1; });
        readers->wait(writers->record());
        readers->enqueue([&written, &read, i] { read[i] = written[i]; });
        writers->wait(readers->record()); // the next round overwrites no value that is still read
        writers->enqueue([&written, i] { written[i] = -1; });
    }
    readers->synchronise();
    writers->synchronise();
    for (std::size_t i = 0; i < 100; ++i) {
        CHECK(read[i] == static_cast<int>(i) + 1);
        CHECK(written[i] == -1);
    }
}

TEMPLATE_TEST_CASE(
    "Waiting for a complete event or for a point of the same queue returns immediately", "",
    InlineKind, ThreadlessKind, ThreadedKind, DelayingKind) {
    auto const queue = TestType::make(5);
    queue->wait(host::Event());
    for (int i = 0; i < 20'000; ++i) { // more than the capacity of the ring: waits enqueue nothing
        queue->wait(queue->record());
    }
    int value = 0;
    queue->enqueue([&value] { value = 1; });
    queue->synchronise();
    CHECK(value == 1);
}

TEMPLATE_TEST_CASE(
    "An event can be queried after its queue is destroyed, and its commands have run", "",
    InlineKind, ThreadlessKind, ThreadedKind, DelayingKind) {
    int value = 0;
    host::Event event;
    CHECK(event.is_complete());
    {
        auto const queue = TestType::make(6);
        for (int i = 0; i < 100; ++i) {
            queue->enqueue([&value] { ++value; });
        }
        event = queue->record();
    }
    CHECK(event.is_complete());
    event.synchronise();
    CHECK(value == 100);
}

TEMPLATE_TEST_CASE("A command holds the largest functor that the message names", "", InlineKind,
                   ThreadlessKind, ThreadedKind, DelayingKind) {
    std::array<unsigned char, host::Command::capacity - sizeof(void*)> large{};
    large.back() = 9;
    unsigned char seen = 0;
    auto const queue = TestType::make(7);
    queue->enqueue([large, out = &seen] { *out = large.back(); });
    queue->synchronise();
    CHECK(seen == 9);
}

TEMPLATE_TEST_CASE("Queues that wait for each other in a ring of events finish", "", ThreadedKind,
                   DelayingKind) {
    constexpr std::size_t queues = 4;
    std::vector<std::unique_ptr<host::Queue>> ring;
    for (std::size_t i = 0; i < queues; ++i) {
        ring.push_back(TestType::make(i));
    }
    std::vector<int> token; // each command runs after the previous one, on another queue
    for (int turn = 0; turn < 200; ++turn) {
        auto& queue = *ring[static_cast<std::size_t>(turn) % queues];
        if (turn > 0) {
            queue.wait(ring[static_cast<std::size_t>(turn - 1) % queues]->record());
        }
        queue.enqueue([&token, turn] { token.push_back(turn); });
    }
    ring[199 % queues]->synchronise();
    REQUIRE(token.size() == 200);
    CHECK(token.front() == 0);
    CHECK(token.back() == 199);
}

} // namespace zero::test::queue_conformance_test
