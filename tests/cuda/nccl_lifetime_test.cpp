#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <array>
#include <optional>
#include <stdexcept>
#include <utility>

// How a communicator ends: never with an exception, never without end.

using namespace zero;
using namespace zero::test;
using cuda::NcclResult;

namespace {

using Lines = Script::Lines;

void reduce(Script::Communicator& communicator, Script& script) {
    constexpr std::array<std::size_t, 4> cuts{0, 64, 128, 192};
    communicator.reduce_scatter(script.at<float const>(0), script.at<float>(512), cuts, script.queue());
}

/// What the destruction of `communicator` called.
Lines destruction(Script& script, std::optional<Script::Communicator>& communicator) {
    (void)script.journal.take();
    communicator.reset();
    CHECK(script.system.live_events == 0);
    return script.journal.take();
}

} // namespace

TEST_CASE("an owner finalises, waits for it, and destroys") {
    Script script;
    std::optional communicator(script.communicator());
    script.nccl.results["finalize"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::in_progress, NcclResult::in_progress, NcclResult::success};
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
    CHECK(script.nccl.asynchronous.empty());
}

TEST_CASE("an owner whose finalisation takes too long, or fails, aborts") {
    Script script;
    std::optional communicator(script.communicator());
    std::int64_t const before = script.system.time;
    SECTION("too long") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.later = NcclResult::in_progress;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
        CHECK(script.system.time - before == 50);
    }
    SECTION("it fails at once") {
        script.nccl.results["finalize"] = NcclResult::system_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("it fails later") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.asynchronous = {NcclResult::in_progress};
        script.nccl.later = NcclResult::remote_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("asking fails") {
        script.nccl.results["finalize"] = NcclResult::in_progress;
        script.nccl.results["get_async_error"] = NcclResult::internal_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "abort"});
    }
    SECTION("destroying fails") {
        script.nccl.results["destroy"] = NcclResult::internal_error;
        CHECK(destruction(script, communicator) == Lines{"finalize", "destroy", "abort"});
    }
}

TEST_CASE("an owner waits for what is under way before it finalises, but not for ever") {
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
    SECTION("the device has failed, or its runtime is shutting down") {
        script.system.results["is_event_complete"] = 4;
        CHECK(destruction(script, communicator) == Lines{"abort"});
    }
}

TEST_CASE("an aborted owner has nothing left to free") {
    Script script;
    std::optional communicator(script.communicator());
    communicator->abort("the reason");
    CHECK(script.journal.take() == Lines{"abort"});
    CHECK(communicator->handle() == nullptr);
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("an owner that an exception unwinds aborts instead of waiting for peers") {
    Script script;
    try {
        auto const communicator = script.communicator();
        throw std::runtime_error("elsewhere");
    } catch (std::runtime_error const&) {
        CHECK(script.journal.take() == Lines{"abort"});
    }
}

TEST_CASE("a reference leaves the caller's communicator alone, with what is under way") {
    Script script;
    script.nccl.rank = 2;
    script.nccl.world = 7;
    std::optional communicator(Script::Communicator::refer_to(script.interfaces(), &script, script.options));
    CHECK(communicator->rank() == 2);
    CHECK(communicator->size() == 7);
    CHECK(communicator->handle() == &script);
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("a reference that is aborted has freed the caller's communicator, and says so") {
    Script script;
    std::optional communicator(Script::Communicator::refer_to(script.interfaces(), &script, script.options));
    CHECK_FALSE(communicator->is_aborted());
    communicator->abort("the reason");
    CHECK(communicator->is_aborted());
    CHECK(script.journal.take() == Lines{"abort"});
    CHECK(destruction(script, communicator).empty());
}

TEST_CASE("a communicator that was taken over is destroyed") {
    Script script;
    std::optional communicator(Script::Communicator::take_over(script.interfaces(), &script, script.options));
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
}

TEST_CASE("a communicator whose use fails at the start stays the caller's") {
    Script script;
    script.system.results["create_event"] = 2;
    CHECK_THROWS_AS(Script::Communicator::refer_to(script.interfaces(), &script, script.options), CommunicatorError);
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options), CommunicatorError);
    script.system.results.clear();
    script.nccl.later = NcclResult::remote_error;
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options), cuda::NcclError);
    script.nccl.results["count"] = NcclResult::invalid_argument;
    CHECK_THROWS_AS(Script::Communicator::take_over(script.interfaces(), &script, script.options), cuda::NcclError);
    CHECK(script.journal.take().empty()); // neither aborted nor destroyed
}

TEST_CASE("a communicator moves: one end, not two") {
    Script script;
    {
        auto first = script.communicator();
        auto const second = std::move(first);
        CHECK(second.rank() == 1);
    }
    CHECK(script.journal.take() == Lines{"finalize", "destroy"});
}

TEST_CASE("the watchdog ends with its communicator") {
    Script script;
    script.options.watch_interval = std::chrono::hours(1);
    std::optional communicator(script.communicator());
    CHECK(destruction(script, communicator) == Lines{"finalize", "destroy"});
}
