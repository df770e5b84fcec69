#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

// Polling, errors, time-outs and aborts, step by step.

namespace zero::test::nccl_failure_test {

using cuda::NcclError;
using cuda::NcclResult;

namespace {

using Cuts = std::array<std::size_t, 4>;
using Lines = Script::Lines;

constexpr Cuts even{0, 64, 128, 192};
constexpr Cuts uneven{0, 10, 13, 15};
constexpr CollectiveTag tag{"gradients of bucket", 3};

void reduce(Script::Communicator& communicator, Script& script, Cuts const& cuts) {
    communicator.reduce_scatter(script.at<float const>(0), script.at<float>(512), cuts,
                                script.queue(), tag);
}

} // namespace

TEST_CASE("A call in progress is polled until NCCL is done, and only then its end is recorded") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["reduce_scatter"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::success, NcclResult::in_progress,
                                NcclResult::in_progress,
                                NcclResult::success}; // the first answers the check before the call
    int pauses = 0;
    script.system.on_pause = [&] {
        ++pauses;
        script.journal.add("pause");
    };
    script.nccl.on_count = [&] { script.journal.add("join"); };
    reduce(communicator, script, even);
    CHECK(script.journal.take()
          == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "pause", "pause", "join", "record"});
    CHECK(script.nccl.asynchronous.empty());
}

TEST_CASE("A call that succeeds at once is also joined, because NCCL may have done it on its own "
          "thread") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.on_count = [&] { script.journal.add("join"); };
    SECTION("the communicator stays usable") {
        reduce(communicator, script, even);
        CHECK(script.journal.take()
              == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "join", "record"});
    }
    SECTION("joining reports an error") {
        script.nccl.results["count"] = NcclResult::system_error;
        CHECK_THAT(message_of<NcclError>([&] { reduce(communicator, script, even); }),
                   contains_text("ncclCommCount in the reduce-scatter of 192 float32"));
        CHECK(script.journal.take()
              == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "join", "abort"});
    }
}

TEST_CASE("A group in progress is polled after its end, never inside") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["reduce"] = NcclResult::in_progress;
    script.nccl.results["group_end"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::success, NcclResult::in_progress, NcclResult::success};
    script.system.on_pause = [&] { script.journal.add("pause"); };
    script.nccl.on_count = [&] { script.journal.add("join"); };
    reduce(communicator, script, uneven);
    CHECK(script.journal.take()
          == Lines{"group_start", "reduce 0 -> null, 10 float32 sum to 0",
                   "reduce 40 -> 512, 3 float32 sum to 1", "reduce 52 -> null, 2 float32 sum to 2",
                   "group_end", "pause", "join", "record"});
}

TEST_CASE("A call that stays in progress is aborted after the time-out with TimedOut, and later "
          "calls throw Aborted") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["reduce_scatter"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::success};
    script.nccl.later = NcclResult::in_progress;
    std::int64_t const before = script.system.time;
    std::string const text = message_of<TimedOut>([&] { reduce(communicator, script, even); });
    CHECK_THAT(text,
               contains_text(
                   "waited 100 ms for the reduce-scatter of 192 float32 ('gradients of bucket 3'"));
    CHECK_THAT(text, contains_text("on rank 1 of 3"));
    CHECK_THAT(text, contains_text("NcclOptions::time_out"));
    CHECK(script.system.time - before == 100);
    CHECK(script.journal.take() == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "abort"});
    CHECK(communicator.is_aborted());
    CHECK_THROWS_AS(reduce(communicator, script, even), Aborted);
    CHECK_THAT(message_of<Aborted>(
                   [&] { communicator.broadcast(script.at<float>(0), 1, 0, script.queue()); }),
               contains_text("waited 100 ms"));
    CHECK_THROWS_AS(communicator.synchronise(), Aborted);
    CHECK_THROWS_AS(communicator.rethrow_failure(), Aborted);
    CHECK(script.journal.take().empty());
}

TEST_CASE("An error inside a group closes the group first and then aborts") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["reduce"] = NcclResult::invalid_argument;
    std::string const text = message_of<NcclError>([&] { reduce(communicator, script, uneven); });
    CHECK_THAT(
        text,
        contains_text("ncclReduce in the reduce-scatter of 15 float32 ('gradients of bucket 3'"));
    CHECK_THAT(text,
               contains_text("some error (NCCL code 4; NCCL's last message: the wire broke)"));
    CHECK(script.journal.take()
          == Lines{"group_start", "reduce 0 -> null, 10 float32 sum to 0", "group_end", "abort"});
    CHECK_THROWS_AS(reduce(communicator, script, even), Aborted);
}

TEST_CASE("An error inside an exchange closes its group first and then aborts") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["receive"] = NcclResult::invalid_usage;
    CHECK_THAT(message_of<NcclError>([&] {
                   communicator.exchange(script.at<float const>(0), script.at<float>(512), uneven,
                                         script.queue(), {"pieces", 3});
               }),
               contains_text("ncclRecv in the exchange of 15 float32 ('pieces 3'"));
    CHECK(script.journal.take()
          == Lines{"group_start", "send 0 -> null, 10 float32 to 0",
                   "receive null -> 512, 3 float32 from 0", "group_end", "abort"});
}

TEST_CASE("A group that does not start is not ended, and a group that does not end is aborted") {
    Script script;
    auto communicator = script.communicator();
    SECTION("start") {
        script.nccl.results["group_start"] = NcclResult::internal_error;
        CHECK_THROWS_AS(reduce(communicator, script, uneven), NcclError);
        CHECK(script.journal.take() == Lines{"group_start", "abort"});
    }
    SECTION("end") {
        script.nccl.results["group_end"] = NcclResult::system_error;
        CHECK_THAT(message_of<NcclError>([&] { reduce(communicator, script, uneven); }),
                   contains_text("ncclGroupEnd in the reduce-scatter"));
        auto const lines = script.journal.take();
        CHECK(lines.size() == 6);
        CHECK(lines.back() == "abort");
    }
}

TEST_CASE("The next call throws an asynchronous error, with NCCL's code") {
    Script script;
    auto communicator = script.communicator();
    reduce(communicator, script, even);
    (void)script.journal.take();
    script.nccl.later = NcclResult::remote_error;
    try {
        reduce(communicator, script, even);
        FAIL("nothing was thrown");
    } catch (NcclError const& error) {
        CHECK(error.code() == 6);
        CHECK_THAT(
            error.what(),
            contains_text("asynchronous error on rank 1 of 3, noticed at 'gradients of bucket'"));
    }
    CHECK(script.journal.take() == Lines{"abort"});
}

TEST_CASE("An asynchronous error is also found by rethrow_failure and while waiting") {
    Script script;
    auto communicator = script.communicator();
    SECTION("rethrow_failure") {
        communicator.rethrow_failure();
        script.nccl.later = NcclResult::system_error;
        CHECK_THROWS_AS(communicator.rethrow_failure(), NcclError);
    }
    SECTION("synchronise") {
        reduce(communicator, script, even);
        script.system.are_events_complete = false;
        script.system.on_pause = [&] { script.nccl.later = NcclResult::system_error; };
        CHECK_THROWS_AS(communicator.synchronise(), NcclError);
    }
    CHECK(communicator.is_aborted());
}

TEST_CASE("A collective that does not end on the device times out, counted from the end of the "
          "previous one") {
    Script script;
    auto communicator = script.communicator();
    script.system.are_events_complete = false;
    reduce(communicator, script, even);
    script.system.time += 99;
    reduce(communicator, script, even); // the first one is still in time
    script.system.are_events_complete = true;
    communicator.rethrow_failure(); // both have run
    script.system.time += 1000;     // no collective is in flight, so no time counts
    script.system.are_events_complete = false;
    reduce(communicator, script, even);
    script.system.time += 99;
    communicator.rethrow_failure();
    script.system.time += 1;
    CHECK_THAT(message_of<TimedOut>([&] { communicator.rethrow_failure(); }),
               contains_text("a collective on the device on rank 1 of 3"));
    CHECK(communicator.is_aborted());
}

TEST_CASE("Of two collectives that were enqueued together, the second has its own time-out") {
    Script script;
    auto communicator = script.communicator();
    script.system.are_events_complete = false;
    reduce(communicator, script, even);
    reduce(communicator, script, even);
    script.system.time += 90;
    script.system.completions = 1; // the first has run
    communicator.rethrow_failure();
    script.system.time += 99;
    communicator.rethrow_failure();
    script.system.time += 1;
    CHECK_THROWS_AS(communicator.rethrow_failure(), TimedOut);
}

TEST_CASE("A wait for all collectives ends with them or with the time-out") {
    Script script;
    auto communicator = script.communicator();
    communicator.synchronise();
    reduce(communicator, script, even);
    script.system.are_events_complete = false;
    SECTION("they end") {
        int pauses = 0;
        script.system.on_pause = [&] { script.system.are_events_complete = ++pauses == 5; };
        communicator.synchronise();
        CHECK(pauses == 5);
        CHECK_FALSE(communicator.is_aborted());
    }
    SECTION("time-out") {
        CHECK_THROWS_AS(communicator.synchronise(), TimedOut);
        CHECK(communicator.is_aborted());
    }
}

TEST_CASE("The watchdog does not mistake a long wait in which collectives keep ending for a "
          "blocking call") {
    for (bool const has_left : {false, true}) {
        Script script;
        script.options.time_out =
            has_left ? std::chrono::minutes(1) : std::chrono::milliseconds(1000);
        auto const cause = std::make_shared<cuda::detail::NcclAbortCause>();
        cuda::detail::NcclSession session(script.interfaces(), &script, false, 1, 3, 0,
                                          script.options, cause);
        session.open("a test");
        script.system.are_events_complete = false;
        for (int collective = 0; collective < 5; ++collective) {
            session.run({CollectiveKind::broadcast, DType::float32, 1, 0, tag}, script.memory,
                        script.memory, {}, script.queue());
        }
        if (has_left) {
            cause->set("a rank left the group", cuda::detail::NcclAbortCause::Kind::left,
                       script.system.now());
        }
        script.system.on_pause = [&] { script.system.completions = 1; };
        script.system.step = 900;
        script.nccl.on_question = [&] {
            std::thread([&] { session.watch(); }).join();
        }; // this thread holds the communicator
        CHECK_NOTHROW(session.synchronise());
        CHECK(script.system.time == 5 * 900);
        CHECK(session.handle() == &script);
    }
}

TEST_CASE("With more collectives in flight than events the newest event moves, and a wait still "
          "sees the end") {
    Script script;
    auto communicator = script.communicator();
    script.system.are_events_complete = false;
    for (int call = 0; call < 200; ++call) {
        reduce(communicator, script, even);
    }
    script.system.on_pause = [&] { script.system.are_events_complete = true; };
    communicator.synchronise();
    CHECK(script.system.live_events == 64);
}

TEST_CASE("A captured collective records no event, so a replay cannot be mistaken for it") {
    Script script;
    auto communicator = script.communicator();
    script.system.is_captured = true;
    reduce(communicator, script, even);
    CHECK(script.journal.take() == Lines{"reduce_scatter 0 -> 512, 64 float32 sum"});
}

TEST_CASE("An error of the device is a CommunicatorError with CUDA's code") {
    Script script;
    auto communicator = script.communicator();
    reduce(communicator, script, even);
    script.system.results["is_event_complete"] = 700;
    try {
        communicator.rethrow_failure();
        FAIL("nothing was thrown");
    } catch (CommunicatorError const& error) {
        CHECK(error.code() == 700);
        CHECK_THAT(error.what(), contains_text("an illegal memory access (CUDA code 700)"));
    }
    CHECK(communicator.is_aborted());
}

TEST_CASE("An abort from another thread ends a polling call, which throws its cause") {
    Script script;
    auto communicator = script.communicator();
    script.nccl.results["reduce_scatter"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::success};
    script.nccl.later = NcclResult::in_progress;
    bool was_called = false;
    script.system.on_pause = [&] {
        // The abort takes no pause of its own: during a pause no thread holds the communicator.
        if (!was_called) {
            was_called = true;
            std::thread([&] { communicator.abort("the reason"); }).join();
        }
    };
    CHECK_THAT(message_of<Aborted>([&] { reduce(communicator, script, even); }),
               contains_text("the group was aborted: the reason"));
    CHECK(script.journal.take() == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "abort"});
}

TEST_CASE("The first cause counts, and a final cause replaces a provisional one") {
    Script script;
    auto communicator = script.communicator();
    SECTION("final causes") {
        communicator.abort("the first");
        communicator.abort("the second");
        CHECK_THAT(message_of<Aborted>([&] { reduce(communicator, script, even); }),
                   contains_text("the first"));
    }
    SECTION("provisional, then final") {
        communicator.abort("something", true);
        communicator.abort("something else", true);
        communicator.abort("the reason", false);
        CHECK_THAT(message_of<Aborted>([&] { reduce(communicator, script, even); }),
                   contains_text("the reason"));
    }
    SECTION("a provisional cause alone is reported after a moment") {
        communicator.abort("something", true);
        std::int64_t const before = script.system.time;
        CHECK_THAT(message_of<Aborted>([&] { reduce(communicator, script, even); }),
                   contains_text("something"));
        CHECK(script.system.time - before == 1000);
    }
    CHECK(script.journal.take() == Lines{"abort"}); // freed once
}

TEST_CASE("The watchdog aborts a communicator that hangs on the device, and the next call throws "
          "the failure once") {
    Script script;
    script.options.watch_interval = std::chrono::milliseconds(1);
    auto communicator = script.communicator();
    script.system.are_events_complete = false;
    reduce(communicator, script, even);
    script.system.time += 100;
    REQUIRE(script.journal.wait_for("abort"));
    CHECK_THAT(message_of<TimedOut>([&] { reduce(communicator, script, even); }),
               contains_text("a collective on the device"));
    CHECK_THROWS_AS(reduce(communicator, script, even), Aborted);
}

TEST_CASE("An abort that NCCL does not finish is left behind, and the exception is thrown in "
          "bounded time") {
    Script script;
    script.system.device = 2;
    auto communicator = script.communicator();
    script.system.hangs = true;
    std::int64_t const before = script.system.time;
    SECTION("a call that fails") {
        script.nccl.results["reduce_scatter"] = NcclResult::system_error;
        CHECK_THROWS_AS(reduce(communicator, script, even), NcclError);
        CHECK(script.journal.take()
              == Lines{"reduce_scatter 0 -> 512, 64 float32 sum", "abort",
                       "left to itself after 5000 ms, on device 2"});
    }
    SECTION("a group") {
        script.nccl.results["reduce"] = NcclResult::system_error;
        CHECK_THROWS_AS(reduce(communicator, script, uneven), NcclError);
        CHECK(script.journal.take()
              == Lines{"group_start", "reduce 0 -> null, 10 float32 sum to 0", "group_end", "abort",
                       "left to itself after 5000 ms, on device 2"});
    }
    SECTION("the program") {
        std::thread([&] {
            communicator.abort("the reason");
        }).join(); // on another thread, whose device is 0
        CHECK(script.journal.take() == Lines{"abort", "left to itself after 5000 ms, on device 2"});
    }
    CHECK(script.system.time - before == 5000);
    CHECK(communicator.is_aborted());
    CHECK_THROWS_AS(reduce(communicator, script, even), Aborted);
    CHECK(script.journal.take().empty()); // not freed twice
}

TEST_CASE(
    "An abort while NCCL blocks goes ahead after a moment, and the blocked call ends as aborted") {
    Script script;
    auto communicator = script.communicator();
    bool was_called = false;
    script.nccl.on_question =
        [&] { // stands for a call that blocks inside NCCL: this thread holds the communicator
            if (!was_called) {
                was_called = true;
                std::thread([&] { communicator.abort("stuck in NCCL"); }).join();
            }
        };
    CHECK_THAT(message_of<Aborted>([&] { reduce(communicator, script, even); }),
               contains_text("stuck in NCCL"));
    CHECK(script.journal.take() == Lines{"abort"});
}

} // namespace zero::test::nccl_failure_test
