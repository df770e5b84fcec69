#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// A peer that never comes: every call ends within its time-out, in both modes of NCCL.

namespace zero::test::nccl_missing_peer_test {

using cuda::NcclMode;
using cuda::NcclResult;

namespace {

using Communicator = Script::Communicator;
using Lines = Script::Lines;

constexpr std::array modes{NcclMode::blocking, NcclMode::non_blocking};

/// Without its peer a blocking call of NCCL takes longer than any limit, and a non-blocking one
/// stays in progress.
struct Lonely : Script {
    explicit Lonely(NcclMode mode) {
        options.mode = mode;
        system.device = 2;
    }

    [[nodiscard]] bool is_blocking() const { return options.mode == NcclMode::blocking; }

    void loses_peer(char const* function) {
        nccl.results[function] = NcclResult::in_progress;
        if (!is_blocking()) {
            nccl.on_call = [this, function](std::string const& called) {
                if (called == function) {
                    nccl.later = NcclResult::in_progress;
                }
            };
        }
    }

    /// As `loses_peer`, for a blocking call that only an abort by the watchdog ends.
    void loses_peer(char const* function, Communicator& communicator) {
        loses_peer(function);
        if (is_blocking()) {
            nccl.on_call = [this, function, &communicator](std::string const& called) {
                if (called == function) {
                    system.time += 100;
                    std::thread([&] { communicator.session().watch(); }).join();
                }
            };
        }
    }

    void reduce(Communicator& communicator) {
        std::int64_t value = 0;
        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, queue());
    }
};

int count_of(Lines const& lines, std::string const& line) {
    return static_cast<int>(std::count(lines.begin(), lines.end(), line));
}

} // namespace

TEST_CASE("Communicators block unless their options say otherwise") {
    CHECK(cuda::NcclOptions().mode == NcclMode::blocking);
}

TEST_CASE("A start without its peers ends with the time-out, and a late communicator is freed") {
    for (auto const mode : modes) {
        Lonely script(mode);
        script.loses_peer("init_rank");
        script.system.hanging_runs = script.is_blocking() ? 1 : 0;
        CHECK_THAT(message_of<TimedOut>([&] { (void)script.communicator(); }),
                   contains_text("waited 100 ms for the start of NCCL (all ranks must join, with "
                                 "the same id and the same number of ranks) on rank 1 of 3"));
        CHECK(script.system.time == 100);
        if (script.is_blocking()) {
            CHECK(script.journal.take() == Lines{"left to itself after 100 ms, on device 2"});
            script.nccl.results.clear();
            std::thread(script.system.end_of_hanging_run).join();
            CHECK(script.journal.take() == Lines{"init_rank 1 of 3 id 0 blocking", "abort"});
        }
    }
}

TEST_CASE("A start that ends just after its time-out is freed, and a failure in time is thrown") {
    Lonely script(NcclMode::blocking);
    SECTION("the communicator") {
        script.system.hangs = true;
        CHECK_THROWS_AS(script.communicator(), TimedOut);
        CHECK(count_of(script.journal.take(), "abort") == 1);
    }
    SECTION("a failure") {
        script.nccl.results["init_rank"] = NcclResult::system_error;
        CHECK_THAT(message_of<cuda::NcclError>([&] { (void)script.communicator(); }),
                   contains_text("ncclCommInitRankConfig on rank 1 of 3 failed"));
    }
    SECTION("no time-out") {
        script.options.time_out = std::chrono::milliseconds::max();
        script.system.hanging_runs = 1;
        CHECK_THROWS_AS(script.communicator(), TimedOut);
        CHECK(std::chrono::milliseconds(script.system.time) == std::chrono::hours(24 * 365));
        script.system.end_of_hanging_run();
    }
}

TEST_CASE("A start in one process without its peers ends with the time-out") {
    for (auto const mode : modes) {
        Lonely script(mode);
        script.loses_peer("group_end");
        script.system.hanging_runs = script.is_blocking() ? 1 : 0;
        CHECK_THAT(message_of<TimedOut>([&] {
                       std::vector<int> const devices{3, 1}; // gone before the late start
                       (void)Communicator::make_group(script.interfaces(), devices, script.options);
                   }),
                   contains_text("waited 100 ms for the start of NCCL in one process"));
        CHECK(script.system.time == 100);
        CHECK(script.system.device == 2);
        if (script.is_blocking()) {
            (void)script.journal.take();
            script.nccl.results.clear();
            std::thread(script.system.end_of_hanging_run).join();
            CHECK(script.journal.take()
                  == Lines{"group_start", "set_device 3", "init_rank 0 of 2 id 42 blocking",
                           "set_device 1", "init_rank 1 of 2 id 42 blocking", "group_end", "abort",
                           "abort"});
        }
    }
}

TEST_CASE("The first collective and a later one without a peer end with the time-out") {
    for (auto const mode : modes) {
        for (bool const is_first : {true, false}) {
            Lonely script(mode);
            auto communicator = script.communicator();
            if (is_first) {
                script.loses_peer("all_reduce", communicator);
            } else { // it was connected before, so NCCL enqueues it and it waits on the device
                script.reduce(communicator);
                script.system.are_events_complete = false;
                script.reduce(communicator);
                script.system.time += 100;
                communicator.session().watch();
            }
            CHECK_THROWS_AS(script.reduce(communicator), TimedOut);
            CHECK(script.system.time == 100);
            CHECK(communicator.is_aborted());
            CHECK(count_of(script.journal.take(), "abort") == 1);
        }
    }
}

TEST_CASE("A split without a peer ends with the time-out, and a late part is freed") {
    for (auto const mode : modes) {
        Lonely script(mode);
        auto communicator = script.communicator();
        script.loses_peer("split");
        script.system.hanging_runs = script.is_blocking() ? 1 : 0;
        CHECK_THAT(message_of<TimedOut>([&] { (void)communicator.split(4, 7); }),
                   contains_text("waited 100 ms for ncclCommSplit (all ranks of the group must "
                                 "split it) on rank 1 of 3"));
        CHECK(script.system.time == 100);
        CHECK(communicator.is_aborted());
        CHECK(count_of(script.journal.take(), "abort") == 1);
        if (script.is_blocking()) {
            script.nccl.results.clear();
            std::thread(script.system.end_of_hanging_run).join();
            CHECK(script.journal.take() == Lines{"split color 4 key 7", "abort"});
        }
    }
}

TEST_CASE("A split that an abort ends throws the cause of the abort") {
    Lonely script(NcclMode::blocking);
    auto communicator = script.communicator();
    script.nccl.results["split"] = NcclResult::internal_error;
    script.nccl.on_call = [&](std::string const& called) {
        if (called == "split") {
            std::thread([&] { communicator.abort("the reason"); }).join();
        }
    };
    CHECK_THAT(message_of<Aborted>([&] { (void)communicator.split(0, 0); }),
               contains_text("the reason"));
}

TEST_CASE("An end without a peer takes finish_time_out and then aborts") {
    for (auto const mode : modes) {
        for (bool const is_in_flight : {true, false}) {
            Lonely script(mode);
            std::optional communicator(script.communicator());
            if (is_in_flight) {
                script.system.are_events_complete = false;
                script.reduce(*communicator);
            } else {
                script.loses_peer("finalize");
                script.system.hanging_runs = script.is_blocking() ? 1 : 0;
            }
            (void)script.journal.take();
            communicator.reset();
            CHECK(script.system.time == 50);
            CHECK(script.journal.take().back() == "abort");
            if (script.system.end_of_hanging_run) {
                script.system.end_of_hanging_run();
                CHECK(script.journal.take() == Lines{"finalize"});
            }
        }
    }
}

TEST_CASE("The calls of a caller's communicator stay on one thread, because its mode is unknown") {
    Lonely script(NcclMode::blocking);
    std::optional communicator(
        Communicator::take_over(script.interfaces(), &script, script.options));
    script.system.hanging_runs = 1;
    std::optional part(communicator->split(0, 0));
    CHECK(script.system.hanging_runs == 1); // nothing ran with a limit
    script.system.hanging_runs = 0;
    part.reset();
    communicator.reset();
    CHECK(script.journal.take()
          == Lines{"split color 0 key 0", "finalize", "destroy", "finalize", "destroy"});
}

} // namespace zero::test::nccl_missing_peer_test
