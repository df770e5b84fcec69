// The ring, the worker and the propagation of exceptions.

#include "queue_kinds.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <zero/core/error.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/threaded_queue.hpp>

namespace zero::test::threaded_queue_test {

using test::DelayingKind;
using test::ThreadedKind;

TEST_CASE("A full ring throws QueueFull with its capacity and the remedy and works afterwards") {
    host::ThreadedQueue queue(8);
    host::ThreadedQueue other;
    Gate gate;
    Gate other_gate;
    int ran = 0;
    gate.hold(queue);
    for (int i = 0; i < 7; ++i) {
        queue.enqueue([&ran] { ++ran; });
    }
    CHECK_THROWS_AS(queue.enqueue([&ran] { ++ran; }), QueueFull);
    CHECK_THROWS_WITH(queue.enqueue([&ran] { ++ran; }),
                      test::contains_text("capacity is 8") && test::contains_text("larger"));
    other_gate.hold(other);
    CHECK_THROWS_AS(queue.wait(other.record()), QueueFull); // a wait also takes an entry
    CHECK_NOTHROW(queue.wait(host::Event()));
    gate.open();
    other_gate.open();
    queue.synchronise();
    CHECK(ran == 7);
    queue.enqueue([&ran] { ++ran; });
    queue.synchronise();
    CHECK(ran == 8);
}

TEST_CASE("The worker of a derived queue runs while the object is constructed and destroyed") {
    // ThreadSanitizer saw the worker read the virtual table that a destructor writes.
    std::atomic<int> ran{0};
    for (int round = 0; round < 500; ++round) {
        host::WaitingQueue waiting(16);
        for (int number = 0; number < 10; ++number) {
            waiting.enqueue([&ran] { ++ran; });
        }
    }
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        host::DelayingQueue delaying(seed, 50, 16);
        for (int number = 0; number < 10; ++number) {
            delaying.enqueue([&ran] { ++ran; });
        }
    }
    CHECK(ran == 5100);
}

TEST_CASE("A queue that waits for room keeps the order and never has more commands than room") {
    for (std::size_t const capacity : {1U, 2U, 7U}) {
        INFO("capacity " << capacity);
        host::WaitingQueue queue(capacity);
        Gate gate;
        std::atomic<std::size_t> pending{0};
        std::size_t most = 0;
        std::vector<int> ran;
        gate.hold(queue);
        gate.open_by_another_thread();
        for (int number = 0; number < 500; ++number) {
            queue.enqueue([&, number] {
                --pending;
                ran.push_back(number);
            });
            most = std::max(most, ++pending);
        }
        queue.synchronise();
        REQUIRE(ran.size() == 500);
        CHECK(std::is_sorted(ran.begin(), ran.end()));
        CHECK(most <= capacity + 1); // one may run before it is counted
    }
}

TEST_CASE("Queues of one entry that wait for one another's events do not deadlock") {
    host::WaitingQueue first(1);
    host::WaitingQueue second(1);
    std::vector<int> ran; // each command depends on the one before it
    for (int turn = 0; turn < 300; ++turn) {
        first.enqueue([&ran, turn] { ran.push_back(2 * turn); });
        second.wait(first.record());
        second.enqueue([&ran, turn] { ran.push_back(2 * turn + 1); });
        first.wait(second.record());
    }
    first.synchronise();
    second.synchronise();
    REQUIRE(ran.size() == 600);
    CHECK(std::is_sorted(ran.begin(), ran.end()));
}

TEST_CASE("A queue of one entry that waits for room works after a failed command") {
    host::WaitingQueue queue(1);
    int ran = 0;
    queue.enqueue([] { throw std::runtime_error("failure"); });
    for (int turn = 0; turn < 5; ++turn) {
        queue.enqueue([&ran] { ++ran; });
    }
    queue.synchronise();
    CHECK(ran == 0);
    CHECK_THROWS_WITH(queue.rethrow_failure(), "failure");
}

TEST_CASE("A wait for a point that a queue already waits for takes no room") {
    host::ThreadedQueue queue(3);
    host::ThreadedQueue other;
    Gate gate;
    gate.hold(other);
    host::Event const earlier = other.record();
    other.enqueue([] {});
    host::Event const later = other.record();
    queue.wait(later);
    for (int turn = 0; turn < 10; ++turn) {
        CHECK_NOTHROW(queue.wait(later));
        CHECK_NOTHROW(queue.wait(earlier));
    }
    other.enqueue([] {});
    CHECK_NOTHROW(queue.wait(other.record())); // a later point takes the second entry
    queue.enqueue([] {});
    CHECK_THROWS_AS(queue.enqueue([] {}), QueueFull);
    gate.open();
    queue.synchronise();
}

TEST_CASE("The ring is reused") {
    host::ThreadedQueue queue(3);
    int ran = 0;
    for (int i = 0; i < 3'000; ++i) {
        queue.enqueue([&ran] { ++ran; });
        if (i % 3 == 2) {
            queue.synchronise();
        }
    }
    queue.synchronise();
    CHECK(ran == 3'000);
}

TEST_CASE("A queue of capacity 0 is rejected") {
    CHECK_THROWS_AS(host::ThreadedQueue(0), InvalidArgument);
}

TEST_CASE("The first exception of a command is kept, later commands are skipped, and events still "
          "complete") {
    host::ThreadedQueue queue;
    int ran = 0;
    CHECK_NOTHROW(queue.rethrow_failure());
    queue.enqueue([&ran] { ++ran; });
    queue.enqueue([] { throw std::runtime_error("the first"); });
    queue.enqueue([&ran] { ++ran; });
    queue.enqueue([] { throw std::runtime_error("the second"); });
    queue.synchronise();
    CHECK(ran == 1);
    for (int time = 0; time < 2; ++time) { // the failure is kept
        CHECK_THROWS_WITH(queue.rethrow_failure(), "the first");
    }
}

TEST_CASE("A queue that failed still waits for others, so its events stay valid") {
    host::ThreadedQueue reader;
    std::optional<host::ThreadedQueue> failed(std::in_place);
    Gate gate;
    int value = 0;
    int seen = -1;
    host::ThreadedQueue writer;
    failed->enqueue([] { throw std::runtime_error("failure"); });
    failed->synchronise();
    gate.hold(writer);
    writer.enqueue([&value] { value = 5; });
    failed->wait(writer.record());
    host::Event const after_wait = failed->record();
    reader.wait(after_wait);
    reader.enqueue([&] { seen = value; });
    for (int turn = 0; turn < 500 && !after_wait.is_complete();
         ++turn) { // a queue that does not wait would be done by now
        std::this_thread::yield();
    }
    CHECK_FALSE(after_wait.is_complete());
    gate.open();
    reader.synchronise();
    CHECK(seen == 5);
    failed.reset();
}

TEMPLATE_TEST_CASE("The destructor runs pending commands and waits and swallows failures", "",
                   ThreadedKind, DelayingKind) {
    auto writer = TestType::make(1);
    int value = 0;
    int seen = -1;
    {
        auto const queue = TestType::make(2);
        for (int i = 0; i < 50; ++i) {
            writer->enqueue([&value] { ++value; });
        }
        queue->wait(writer->record());
        queue->enqueue([&] { seen = value; });
        queue->enqueue([] { throw 1; });
    }
    CHECK(seen == 50);
    writer.reset();
    CHECK(value == 50);
}

TEST_CASE(
    "A destroyed queue leaves no thread waiting, even if the waiting queue is destroyed first") {
    for (int time = 0; time < 50; ++time) {
        host::Event event;
        std::optional<host::ThreadedQueue> first(std::in_place);
        std::optional<host::ThreadedQueue> second(std::in_place);
        int value = 0;
        first->enqueue([&value] { value = 1; });
        second->wait(first->record());
        event = second->record();
        if (time % 2 == 0) {
            first.reset();
            second.reset();
        } else {
            second.reset();
            first.reset();
        }
        CHECK(event.is_complete());
        CHECK(value == 1);
    }
}

TEST_CASE("A threaded queue runs on its own thread, an inline queue on the calling thread") {
    std::thread::id ran_on;
    host::ThreadedQueue threaded;
    threaded.enqueue([&] { ran_on = std::this_thread::get_id(); });
    threaded.synchronise();
    CHECK(ran_on != std::this_thread::get_id());
    host::InlineQueue here;
    here.enqueue([&] { ran_on = std::this_thread::get_id(); });
    CHECK(ran_on == std::this_thread::get_id());
    CHECK_THROWS_WITH(here.enqueue([] { throw std::runtime_error("at once"); }), "at once");
    CHECK_NOTHROW(here.rethrow_failure());
    CHECK(here.record().is_complete());
}

TEST_CASE("Negative control: without a wait, a delaying queue shows that an event is missing") {
    int stale = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        auto const writer = DelayingKind::make(seed);
        std::atomic<int> value{0};
        int seen = -1;
        for (int i = 0; i < 8; ++i) {
            writer->enqueue([&value] { ++value; });
        }
        host::InlineQueue reader; // omits reader.wait(writer->record())
        reader.enqueue([&] { seen = value.load(); });
        writer->synchronise();
        stale += seen != 8 ? 1 : 0;
    }
    CHECK(stale > 0);
}

TEST_CASE("A queue without a thread has the memory of one with a thread, and is never full") {
    HostMemoryResource memory;
    host::WaitingQueue const with(300, memory);
    host::ThreadlessQueue without(300, memory);
    CHECK(with.has_thread());
    CHECK_FALSE(without.has_thread());
    CHECK(with.size_bytes() == without.size_bytes());
    int ran = 0;
    for (int command = 0; command < 1000; ++command) {
        without.enqueue([&ran] { ++ran; });
    }
    CHECK(ran == 1000);
    CHECK_THROWS_AS(host::ThreadlessQueue(0, memory), InvalidArgument);
}

TEST_CASE("The cores are those of the strictest control group, at most the given ones") {
    TemporaryFolder const root;
    auto const write = [&](std::string const& folder, std::string const& name,
                           std::string const& text) {
        std::string const path = root.path().string() + "/" + folder;
        std::filesystem::create_directories(path);
        std::ofstream(path + "/" + name) << text;
    };
    auto const granted = [&](std::string const& line) {
        return host::detail::granted_cores(root.path().string(), line, 8.0);
    };
    CHECK(granted("0::/") == 8.0); // no file
    write("a/b/c", "cpu.max", "150000 100000\n");
    write("a/b", "cpu.max", "max 100000\n");
    write("a", "cpu.max", "400000 100000\n");
    CHECK(granted("0::/a/b/c") == 1.5);
    CHECK(granted("0::/a/b") == 4.0);
    CHECK(granted("0::/a") == 4.0);
    CHECK(granted("0::/other") == 8.0);
    write("wide", "cpu.max", "900000 100000");
    write("odd", "cpu.max", "nothing");
    write("half", "cpu.max", "100000");
    for (char const* const line : {"0::/wide", "0::/odd", "0::/half", "", ":", "0:", "0::", "::x",
                                   "1:cpu", "1:name=a:b:/wide"}) {
        CHECK(granted(line) == 8.0);
    }
    // Groups of version 1 have a folder for each controller.
    write("cpu/d", "cpu.cfs_quota_us", "250000\n");
    write("cpu/d", "cpu.cfs_period_us", "50000\n");
    write("cpu/free", "cpu.cfs_quota_us", "-1\n");
    write("cpu/free", "cpu.cfs_period_us", "100000\n");
    CHECK(granted("3:cpuacct,cpu:/d/e") == 5.0);
    CHECK(granted("1:cpu:/d") == 5.0);
    CHECK(granted("1:cpu:/free") == 8.0);
    CHECK(granted("2:cpuset,cpuacct:/d") == 8.0); // other controllers
    CHECK(granted("0::/d") == 8.0);
    write("", "cpu.max", "50000 100000");
    CHECK(granted("0::/a/b/c") == 0.5);
    CHECK(granted("0::/") == 0.5);
    CHECK(host::available_cores() >= 1);
    CHECK(host::available_cores() <= std::thread::hardware_concurrency());
}

} // namespace zero::test::threaded_queue_test
