#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

// The end of a communicator: without exceptions and in bounded time.

namespace zero::test::nccl_lifetime_test {

using cuda::NcclResult;

namespace {

using Lines = Script::Lines;

void reduce(Script::Communicator& communicator, Script& script) {
    constexpr std::array<std::size_t, 4> cuts{0, 64, 128, 192};
    communicator.reduce_scatter(script.at<float const>(0), script.at<float>(512), cuts,
                                script.queue());
}

/// Returns the calls of the destructor of `communicator`.
Lines destruction(Script& script, std::optional<Script::Communicator>& communicator) {
    (void)script.journal.take();
    communicator.reset();
    CHECK(script.system.live_events == 0);
    return script.journal.take();
}

} // namespace

TEST_CASE("An owner finalises the communicator, waits, and destroys it") {
    Script script;
    std::optional communicator(script.communicator());
    script.nccl.results["finalize"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::in_progress, NcclResult::in_progress,
                                NcclResult::success};
    script.nccl.on_count = [&] {
        script.journal.add("join");
    }; // on this thread, since another one destroys
    CHECK(destruction(script, communicator) == Lines{"finalize", "join", "destroy"});
    CHECK(script.nccl.asynchronous.empty());
}

TEST_CASE("An owner aborts if the finalisation takes too long or fails") {
    Script script;
    std::optional communicator(script.communicator());
    std::int64_t const before = script.system.time;
    SECTION("too long") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.later = NcclResult::in_progress;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
        CHECK(script.system.time - before == 50);
    }
    SECTION("failure at once") {
        script.nccl.results["finalize"] = NcclResult::system_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("failure later") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.asynchronous = {NcclResult::in_progress};
        script.nccl.later = NcclResult::remote_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("polling fails") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.results["get_async_error"] = NcclResult::internal_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("joining fails") {
        script.nccl.results["count"] = NcclResult::remote_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
}

TEST_CASE("A handle that NCCL is destroying is never aborted") {
    Script script;
    script.system.device = 2;
    std::optional communicator(script.communicator());
    SECTION("destroying fails") {
        script.nccl.results["destroy"] = NcclResult::internal_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
    }
    SECTION("destroying hangs and is left behind when the destructor's time is over") {
        reduce(*communicator, script);
        script.system.are_events_complete = false;
        int pauses = 0;
        script.system.on_pause = [&] { script.system.are_events_complete = ++pauses == 7; };
        script.system.hangs = true;
        std::int64_t const before = script.system.time;
        CHECK(destruction(script, communicator)
              == Lines{"finalize", "destroy", "left to itself after 43 ms, on device 2"});
        CHECK(script.system.time - before == 50);
    }
}

TEST_CASE("The longest duration means no limit, not a time in the past") {
    Script script;
    constexpr auto without_limit = std::chrono::milliseconds::max();
    script.system.time = 1;
    script.options.time_out = without_limit;
    script.options.finish_time_out = without_limit;
    std::optional communicator(script.communicator());
    script.system.step = std::chrono::milliseconds(std::chrono::hours(24)).count();
    script.system.are_events_complete = false;
    int days = 0;
    script.system.on_pause = [&] { script.system.are_events_complete = ++days % 100 == 0; };
    reduce(*communicator, script);
    communicator->synchronise();
    CHECK(days == 100);
    script.system.are_events_complete = false;
    reduce(*communicator, script);
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
    CHECK(days == 200);
}

TEST_CASE("A watchdog with the longest interval waits for its end and does not poll all the time") {
    Script script;
    script.options.watch_interval = std::chrono::milliseconds::max();
    CHECK(cuda::detail::with_finite_waits(script.options).watch_interval
          == std::chrono::hours(24 * 365)); // added to any time, this stays in the clock's range
    std::optional communicator(
        Script::Communicator::from_unique_id(script.interfaces(), {}, 1, 3, script.options));
    REQUIRE(script.journal.wait_for("set_device 0")); // it has begun
    communicator.reset();
    CHECK(script.system.live_events == 0);
}

TEST_CASE("An abort cannot reach a handle that is being destroyed") {
    struct Watched : ScriptedNccl {
        using ScriptedNccl::ScriptedNccl;
        std::function<void()> on_destroy;
        Result destroy(Handle handle) noexcept override {
            on_destroy();
            return ScriptedNccl::destroy(handle);
        }
    };
    Script script;
    Watched nccl(script.journal);
    auto session = std::make_unique<cuda::detail::NcclSession>(
        cuda::NcclInterface{&nccl, &script.system}, &script, true, 1, 3, 0, script.options,
        std::make_shared<cuda::detail::NcclAbortCause>());
    cuda::detail::NcclLifetime& lifetime = *session;
    nccl.on_destroy = [&] { lifetime.abort("too late", false); };
    session.reset();
    CHECK(script.journal.take() == Lines{"finalize", "destroy"});
}

TEST_CASE("An owner waits for collectives in flight before it finalises, but in bounded time") {
    Script script;
    std::optional communicator(script.communicator());
    reduce(*communicator, script);
    script.system.are_events_complete = false;
    std::int64_t const before = script.system.time;
    SECTION("it ends") {
        int pauses = 0;
        script.system.on_pause = [&] { script.system.are_events_complete = ++pauses == 7; };
        CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
        CHECK(script.system.time - before == 7);
    }
    SECTION("it hangs") {
        CHECK(destruction(script, communicator) == Lines{"abort"});
        CHECK(script.system.time - before == 50);
    }
    SECTION("it hangs, and so does the abort") {
        script.system.hangs = true;
        CHECK(destruction(script, communicator)
              == Lines{"abort", "left to itself after 5000 ms, on device 0"});
        CHECK(script.system.time - before == 5050);
    }
    SECTION("the device has failed, or its runtime is shutting down") {
        script.system.results["is_event_complete"] = 4;
        CHECK(destruction(script, communicator) == Lines{"abort"});
    }
}

TEST_CASE("An aborted owner has nothing left to free") {
    Script script;
    std::optional communicator(script.communicator());
    communicator->abort("the reason");
    CHECK(script.journal.take() == Lines{"abort"});
    CHECK(communicator->handle() == nullptr);
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("An owner that an exception unwinds aborts instead of waiting for peers") {
    Script script;
    try {
        auto const communicator = script.communicator();
        throw std::runtime_error("elsewhere");
    } catch (std::runtime_error const&) {
        CHECK(script.journal.take() == Lines{"abort"});
    }
}

TEST_CASE("A reference leaves the caller's communicator and its collectives in flight alone") {
    Script script;
    script.nccl.rank = 2;
    script.nccl.world = 7;
    std::optional communicator(
        Script::Communicator::refer_to(script.interfaces(), &script, script.options));
    CHECK(communicator->rank() == 2);
    CHECK(communicator->size() == 7);
    CHECK(communicator->handle() == &script);
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("A reference that an exception unwinds leaves the abort to the caller") {
    Script script;
    try {
        auto communicator =
            Script::Communicator::refer_to(script.interfaces(), &script, script.options);
        script.system.are_events_complete = false;
        reduce(communicator, script);
        (void)script.journal.take();
        throw std::runtime_error("elsewhere");
    } catch (std::runtime_error const&) {
        CHECK(script.journal.take().empty());
    }
}

TEST_CASE("An aborted reference has freed the caller's communicator and reports it") {
    Script script;
    std::optional communicator(
        Script::Communicator::refer_to(script.interfaces(), &script, script.options));
    CHECK_FALSE(communicator->is_aborted());
    communicator->abort("the reason");
    CHECK(communicator->is_aborted());
    CHECK(script.journal.take() == Lines{"abort"});
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("A communicator that NCCL is still setting up is only polled until it is done") {
    Script script;
    script.nccl.asynchronous = {NcclResult::in_progress, NcclResult::in_progress,
                                NcclResult::success};
    script.nccl.on_count = [&] {
        script.journal.add(script.nccl.asynchronous.empty() ? "count" : "count too early");
    };
    auto const communicator =
        Script::Communicator::refer_to(script.interfaces(), &script, script.options);
    CHECK(communicator.rank() == 1);
    CHECK(script.system.time == 2);
    CHECK(script.journal.take() == Lines{"count", "count"}); // for its value, and to join
}

TEST_CASE("A communicator that was taken over is destroyed") {
    Script script;
    std::optional communicator(
        Script::Communicator::take_over(script.interfaces(), &script, script.options));
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
}

TEST_CASE("A communicator stays the caller's if the start fails") {
    Script script;
    script.system.results["create_event"] = 2;
    CHECK_THROWS_AS(Script::Communicator::refer_to(script.interfaces(), &script, script.options),
                    CommunicatorError);
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options),
                    CommunicatorError);
    script.system.results.clear();
    script.nccl.later = NcclResult::remote_error;
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options),
                    cuda::NcclError);
    script.nccl.later = NcclResult::in_progress;
    CHECK_THAT(message_of<TimedOut>([&] {
                   (void)Script::Communicator::take_over(script.interfaces(), &script,
                                                         script.options);
               }),
               contains_text("waited 100 ms for NCCL to set up the caller's communicator"));
    CHECK(script.system.time == 100);
    script.nccl.later = NcclResult::success;
    script.nccl.results["count"] = NcclResult::invalid_argument;
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options),
                    cuda::NcclError);
    script.system.results["current_device"] = 3;
    CHECK_THROWS_AS(Script::Communicator::refer_to(script.interfaces(), &script, script.options),
                    CommunicatorError);
    CHECK(script.journal.take().empty()); // neither aborted nor destroyed
}

TEST_CASE("A moved communicator is destroyed once") {
    Script script;
    {
        auto first = script.communicator();
        auto const second = std::move(first);
        CHECK(second.rank() == 1);
    }
    CHECK(script.journal.take() == Lines{"finalize", "destroy"});
}

TEST_CASE("The watchdog ends with its communicator, and its thread first selects the "
          "communicator's device") {
    Script script;
    script.options.watch_interval = std::chrono::hours(1);
    script.system.device = 2;
    std::optional communicator(
        Script::Communicator::from_unique_id(script.interfaces(), {}, 1, 3, script.options));
    REQUIRE(script.journal.wait_for("set_device 2"));
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
}

TEST_CASE("The watchdog polls on the communicator's device") {
    Script script;
    script.options.watch_interval = std::chrono::milliseconds(1);
    script.system.device = 2;
    auto const owner = std::this_thread::get_id();
    script.nccl.on_question = [&] {
        if (std::this_thread::get_id() != owner) {
            script.journal.add("asked on device " + std::to_string(script.system.device));
        }
    };
    auto const communicator =
        Script::Communicator::from_unique_id(script.interfaces(), {}, 1, 3, script.options);
    CHECK(script.journal.wait_for("asked on device 2"));
    for (auto const& line : script.journal.take()) {
        CHECK(line != "asked on device 0");
    }
}

} // namespace zero::test::nccl_lifetime_test
