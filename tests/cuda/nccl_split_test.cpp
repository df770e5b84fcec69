#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <string>

// The calls that a split makes, and every way in which it fails.

namespace zero::test::nccl_split_test {

using cuda::NcclError;
using cuda::NcclResult;

namespace {

using Lines = Script::Lines;

} // namespace

TEST_CASE("A split waits for the enqueued collectives, then for NCCL, and has the rank and size "
          "that NCCL says") {
    Script script;
    auto communicator = script.communicator();
    std::int64_t value = 1;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, Script::queue());
    script.system.are_events_complete = false;
    script.system.on_pause = [&] { script.system.are_events_complete = true; };
    (void)script.journal.take();
    script.nccl.results["split"] = NcclResult::in_progress;
    script.nccl.world = 2;
    script.nccl.rank = 0;
    {
        auto const part = communicator.split(4, -7);
        CHECK(part.rank() == 0);
        CHECK(part.size() == 2);
        CHECK(script.system.time == 1); // one query of the events, which were not complete
        CHECK(script.journal.take() == Lines{"split color 4 key -7"});
    }
    CHECK(script.journal.take() == Lines{"finalize", "destroy"});
    CHECK_FALSE(communicator.is_aborted());
}

TEST_CASE("A library without split, and a negative color, are refused before anything is called") {
    Script script;
    auto communicator = script.communicator();
    CHECK_THAT(message_of<InvalidArgument>([&] { (void)communicator.split(-1, 0); }),
               contains_text("split got the color -1 on rank 1; colors are not negative"));
    script.nccl.can_split = false;
    CHECK_THAT(message_of<InvalidArgument>([&] { (void)communicator.split(0, 0); }),
               contains_text("this cuda::NcclLibrary has no split")
                   && contains_text("make each group with from_unique_id"));
    CHECK(script.journal.take().empty());
    CHECK_NOTHROW(communicator.rethrow_failure()); // the group is usable
}

TEST_CASE("A split that fails aborts the group and leaves nothing behind") {
    Script script;
    auto communicator = script.communicator();
    SECTION("at once") {
        script.nccl.results["split"] = NcclResult::system_error;
        CHECK_THAT(message_of<NcclError>([&] { (void)communicator.split(0, 0); }),
                   contains_text("ncclCommSplit (all ranks of the group must split it) on rank 1 "
                                 "of 3 failed: unhandled system error (NCCL code 2"));
        CHECK(script.journal.take() == Lines{"split color 0 key 0", "abort"});
    }
    SECTION("by the time-out, because a rank does not split") {
        script.nccl.results["split"] = NcclResult::in_progress;
        script.system.on_pause = [&] { script.nccl.later = NcclResult::in_progress; };
        script.nccl.asynchronous = {NcclResult::success, NcclResult::in_progress};
        CHECK_THAT(message_of<TimedOut>([&] { (void)communicator.split(0, 0); }),
                   contains_text("waited 100 ms for ncclCommSplit"));
        CHECK(script.journal.take() == Lines{"split color 0 key 0", "abort"});
    }
    SECTION("when the part has no events") {
        script.system.results["create_event"] = 2;
        CHECK_THAT(message_of<CommunicatorError>([&] { (void)communicator.split(0, 0); }),
                   contains_text("CUDA code 2"));
        CHECK(script.journal.take() == Lines{"split color 0 key 0", "abort", "abort"});
    }
    CHECK(communicator.is_aborted());
    CHECK_THROWS_AS(communicator.rethrow_failure(), Aborted);
}

TEST_CASE("An abort of a group reaches its parts and an abort of a part reaches the group, but the "
          "end of either reaches no other") {
    Script script;
    auto communicator = script.communicator();
    { auto const ended = communicator.split(0, 0); }
    CHECK_NOTHROW(communicator.rethrow_failure());
    auto part = communicator.split(0, 0);
    auto inner = part.split(3, 0);
    CHECK_NOTHROW(inner.rethrow_failure());
    SECTION("the group") {
        CHECK_NOTHROW(communicator.abort("a reason"));
    }
    SECTION("a part") {
        CHECK_NOTHROW(part.abort("a reason"));
    }
    SECTION("a part of a part") {
        CHECK_NOTHROW(inner.abort("a reason"));
    }
    for (auto* const group : {&communicator, &part, &inner}) {
        CHECK_THAT(message_of<Aborted>([&] { group->rethrow_failure(); }),
                   contains_text("a reason"));
    }
}

} // namespace zero::test::nccl_split_test
