#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

// Every way to start a communicator, and every way in which the start fails.

namespace zero::test::nccl_start_test {

using cuda::NcclError;
using cuda::NcclResult;
using cuda::NcclVersionMismatch;

namespace {

using Lines = Script::Lines;
using Communicator = Script::Communicator;

/// Returns the message of a start by a unique id as rank 1 of 3.
template <class E>
std::string failure(Script& script) {
    return message_of<E>(
        [&] { (void)Communicator::from_unique_id(script.interfaces(), {}, 1, 3, script.options); });
}

} // namespace

TEST_CASE("A rank joins by a unique id and waits until all ranks have joined") {
    Script script;
    script.nccl.results["init_rank"] = NcclResult::in_progress;
    script.nccl.asynchronous = {NcclResult::in_progress, NcclResult::in_progress,
                                NcclResult::success};
    auto const id = cuda::make_unique_id(script.interfaces());
    auto const communicator =
        Communicator::from_unique_id(script.interfaces(), id, 1, 3, script.options);
    CHECK(communicator.rank() == 1);
    CHECK(communicator.size() == 3);
    CHECK(script.journal.take() == Lines{"get_unique_id", "init_rank 1 of 3 id 42"});
    CHECK(script.nccl.asynchronous.empty());
    CHECK(script.system.time == 2);
}

TEST_CASE("With NcclMode::blocking NCCL is told to block") {
    Script script;
    script.options.mode = cuda::NcclMode::blocking;
    auto const communicator =
        Communicator::from_unique_id(script.interfaces(), {}, 0, 2, script.options);
    CHECK(script.journal.take() == Lines{"init_rank 0 of 2 id 0 blocking"});
}

TEST_CASE("A failed start throws a typed error with NCCL's code and leaves nothing behind") {
    Script script;
    SECTION("at once, without a communicator") {
        script.nccl.results["init_rank"] = NcclResult::unhandled_cuda_error;
        CHECK_THAT(failure<NcclError>(script),
                   contains_text("ncclCommInitRankConfig on rank 1 of 3 failed: some error (NCCL "
                                 "code 1; NCCL's last message: the wire broke)"));
        CHECK(script.journal.take() == Lines{"init_rank 1 of 3 id 0"});
    }
    SECTION("later, and the communicator is freed") {
        script.nccl.later = NcclResult::system_error;
        CHECK_THAT(failure<NcclError>(script), contains_text("the start of NCCL"));
        CHECK(script.journal.take() == Lines{"init_rank 1 of 3 id 0", "abort"});
    }
    SECTION("by the time-out, because ranks are missing") {
        script.nccl.later = NcclResult::in_progress;
        CHECK_THAT(failure<TimedOut>(script),
                   contains_text("waited 100 ms for the start of NCCL (all ranks must join, "
                                 "with the same id and the same number of ranks)"));
        CHECK(script.journal.take() == Lines{"init_rank 1 of 3 id 0", "abort"});
        CHECK(script.system.time == 100);
    }
    SECTION("no events") {
        script.system.results["create_event"] = 2;
        CHECK_THAT(failure<CommunicatorError>(script), contains_text("CUDA code 2"));
        CHECK(script.journal.take().back() == "abort");
    }
    SECTION("no id") {
        script.nccl.results["get_unique_id"] = NcclResult::system_error;
        CHECK_THROWS_AS(cuda::make_unique_id(script.interfaces()), NcclError);
    }
}

TEST_CASE("A start without a current device fails before NCCL is called") {
    Script script;
    script.system.results["current_device"] = 100;
    CHECK_THAT(failure<CommunicatorError>(script), contains_text("cudaGetDevice failed"));
    CHECK(script.journal.take().empty());
}

TEST_CASE(
    "A variable that NCCL prefers to a contradicting option is refused before NCCL is called") {
    using cuda::NcclMode;
    struct Row {
        char const* value;
        NcclMode mode;
        char const* text;
    };
    for (auto const& [value, mode, text] :
         {Row{"1", NcclMode::non_blocking,
              "that is non_blocking; unset the variable, or set the mode to blocking."},
          Row{"0", NcclMode::blocking,
              "that is blocking; unset the variable, or set the mode to non_blocking."}}) {
        Script script;
        script.system.variables = {{"NCCL_COMM_BLOCKING", value}};
        script.options.mode = mode;
        CHECK_THAT(
            failure<InvalidArgument>(script),
            contains_text(std::string("the environment variable NCCL_COMM_BLOCKING is ") + value));
        CHECK_THAT(failure<InvalidArgument>(script), contains_text(text));
        CHECK_THROWS_WITH(
            Communicator::make_group(script.interfaces(), std::array{0, 1}, script.options),
            contains_text("NCCL_COMM_BLOCKING"));
        CHECK_THROWS_WITH(Communicator::from_environment(script.interfaces(), script.options),
                          contains_text("NCCL_COMM_BLOCKING"));
        CHECK(script.journal.take().empty());
        CHECK(Communicator::refer_to(script.interfaces(), &script, script.options).rank()
              == 1); // made elsewhere, whatever its mode
        script.options.mode =
            mode == NcclMode::blocking ? NcclMode::non_blocking : NcclMode::blocking;
        CHECK(failure<InvalidArgument>(script) == "nothing was thrown");
    }
}

TEST_CASE("Ranks and options out of range are refused before NCCL is called") {
    Script script;
    auto const start = [&](int rank, int world) {
        (void)Communicator::from_unique_id(script.interfaces(), {}, rank, world, script.options);
    };
    CHECK_THROWS_AS(start(0, 0), InvalidArgument);
    CHECK_THROWS_AS(start(-1, 2), InvalidArgument);
    CHECK_THROWS_WITH(start(2, 2), contains_text("rank 2 of a group of 2"));
    CHECK_THROWS_AS(Communicator::refer_to(script.interfaces(), nullptr), InvalidArgument);
    CHECK_THROWS_AS(Communicator::take_over(script.interfaces(), nullptr), InvalidArgument);
    script.options.time_out = std::chrono::milliseconds(0);
    CHECK_THROWS_WITH(start(0, 1), contains_text("cuda::NcclOptions::time_out must be positive"));
    script.options.time_out = std::chrono::milliseconds(1);
    script.options.watch_interval = std::chrono::milliseconds(-1);
    CHECK_THROWS_AS(start(0, 1), InvalidArgument);
    CHECK(script.journal.take().empty());
}

TEST_CASE(
    "The number of blocks, the cluster size and the policy of collectives reach NCCL, and values "
    "out of range are refused") {
    Script script;
    script.options.min_ctas = 2;
    script.options.max_ctas = 16;
    script.options.cluster_size = 4;
    script.options.cta_policy = cuda::NcclCtaPolicy::zero;
    CHECK(failure<InvalidArgument>(script) == "nothing was thrown");
    CHECK(script.journal.take()[0] == "init_rank 1 of 3 id 0 ctas 2 to 16 cluster 4 policy 3");
    auto const refused = [](auto const& change, char const* text) {
        Script other;
        change(other);
        CHECK_THAT(failure<InvalidArgument>(other), contains_text(text));
        CHECK_THROWS_AS(
            Communicator::make_group(other.interfaces(), std::array{0, 1}, other.options),
            InvalidArgument);
        CHECK(other.journal.take().empty());
    };
    refused([](Script& of) { of.options.min_ctas = -1; }, "min_ctas is -1 and max_ctas 0");
    refused([](Script& of) { of.options.max_ctas = -1; }, "min_ctas is 0 and max_ctas -1");
    refused(
        [](Script& of) {
            of.options.min_ctas = 9;
            of.options.max_ctas = 8;
        },
        "min_ctas is 9 and max_ctas 8");
    refused([](Script& of) { of.options.cluster_size = 9; }, "cluster_size is 9");
    refused(
        [](Script& of) {
            of.options.native_all_reduce = true;
            of.options.order = cuda::NcclOrder::rank;
        },
        "native_all_reduce adds in NCCL's order, and cuda::NcclOptions::order is rank");
    refused([](Script& of) { of.options.cluster_size = -1; }, "cluster_size is -1");
    refused(
        [](Script& of) {
            of.nccl.header = 22707;
            of.options.cta_policy = cuda::NcclCtaPolicy::zero;
        },
        "cta_policy needs NCCL 2.28.0, and the program was compiled with the header of NCCL "
        "2.27.7");
    refused(
        [](Script& of) {
            of.nccl.header = 22602;
            of.options.cta_policy = cuda::NcclCtaPolicy::efficiency;
        },
        "cta_policy needs NCCL 2.27.0");
}

TEST_CASE("Header and library must match, and the error names both versions") {
    Script script;
    SECTION("an older library") {
        script.nccl.library = 22707;
        std::string const text = failure<NcclVersionMismatch>(script);
        CHECK_THAT(text, contains_text("header of NCCL 2.28.9"));
        CHECK_THAT(text, contains_text("library of NCCL 2.27.7"));
        CHECK_THROWS_AS(cuda::make_unique_id(script.interfaces()), NcclVersionMismatch);
        CHECK_THROWS_AS(Communicator::refer_to(script.interfaces(), &script), NcclVersionMismatch);
    }
    SECTION("a library with the old coding of versions") {
        script.nccl.library = 2708;
        CHECK_THAT(failure<NcclVersionMismatch>(script), contains_text("library of NCCL 2.7.8"));
    }
    SECTION("another major version") {
        script.nccl.library = 30000;
        CHECK_THAT(failure<NcclVersionMismatch>(script), contains_text("library of NCCL 3.0.0"));
    }
    SECTION("a newer library of the same major version") {
        script.nccl.library = 22903;
        CHECK(failure<NcclVersionMismatch>(script) == "nothing was thrown");
    }
    SECTION("no answer") {
        script.nccl.results["get_version"] = NcclResult::internal_error;
        CHECK_THAT(failure<NcclError>(script), contains_text("ncclGetVersion failed"));
    }
}

TEST_CASE("One process starts a rank per device in one group and keeps its current device") {
    Script script;
    script.system.device = 3;
    script.nccl.results["init_rank"] = NcclResult::in_progress;
    script.nccl.results["group_end"] = NcclResult::in_progress;
    {
        auto const ranks =
            Communicator::make_group(script.interfaces(), std::array{2, 0}, script.options);
        REQUIRE(ranks.size() == 2);
        CHECK(ranks[0].rank() == 0);
        CHECK(ranks[1].rank() == 1);
        CHECK(ranks[1].size() == 2);
        CHECK(script.journal.take()
              == Lines{"get_unique_id", "group_start", "set_device 2", "init_rank 0 of 2 id 42",
                       "set_device 0", "init_rank 1 of 2 id 42", "group_end", "set_device 2",
                       "set_device 0", "set_device 3"});
    }
    CHECK(script.journal.take() == Lines{"finalize", "destroy", "finalize", "destroy"});
}

TEST_CASE("A failed start of a group in one process closes the group and then aborts the ranks "
          "that were made") {
    Script script;
    auto const start = [&] {
        (void)Communicator::make_group(script.interfaces(), std::array{0, 1}, script.options);
    };
    SECTION("a rank") {
        script.nccl.results["init_rank"] = NcclResult::unhandled_cuda_error;
        CHECK_THAT(message_of<NcclError>(start),
                   contains_text("ncclCommInitRankConfig on rank 0 of 2"));
        CHECK(script.journal.take()
              == Lines{"get_unique_id", "group_start", "set_device 0", "init_rank 0 of 2 id 42",
                       "group_end", "set_device 0"});
    }
    SECTION("the group") {
        script.nccl.results["group_end"] = NcclResult::system_error;
        CHECK_THAT(message_of<NcclError>(start), contains_text("the start of 2 ranks of NCCL"));
        auto const lines = script.journal.take();
        CHECK(Lines(lines.end() - 4, lines.end())
              == Lines{"group_end", "abort", "abort", "set_device 0"});
    }
    SECTION("a device") {
        script.system.results["set_device"] = 101;
        CHECK_THAT(message_of<CommunicatorError>(start), contains_text("cudaSetDevice(0) failed"));
        CHECK(
            script.journal.take()
            == Lines{"get_unique_id", "group_start", "set_device 0", "group_end", "set_device 0"});
    }
    SECTION("later") {
        script.nccl.later = NcclResult::system_error;
        CHECK_THROWS_AS(start(), NcclError);
        auto const lines = script.journal.take();
        CHECK(std::count(lines.begin(), lines.end(), "abort") == 2);
    }
}

TEST_CASE("Devices that are missing or named twice are refused before NCCL is called") {
    Script script;
    auto const start = [&](std::vector<int> const& devices) {
        (void)Communicator::make_group(script.interfaces(), devices, script.options);
    };
    CHECK_THROWS_AS(start({}), InvalidArgument);
    CHECK_THROWS_WITH(start({0, 4}), contains_text("rank 1 names CUDA device 4, but there are 4"));
    CHECK_THROWS_AS(start({-1}), InvalidArgument);
    CHECK_THROWS_WITH(start({1, 2, 1}), contains_text("Loopback<cuda::Backend>"));
    CHECK(script.journal.take().empty());
}

TEST_CASE(
    "A device may be named for several ranks from NCCL 2.30 on if NCCL's variable allows it") {
    Script script;
    auto const start = [&] {
        return Communicator::make_group(script.interfaces(), std::array{1, 1}, script.options)
            .size();
    };
    auto const refused = [&](char const* text) {
        CHECK_THAT(message_of<InvalidArgument>([&] { (void)start(); }), contains_text(text));
        CHECK(script.journal.take().empty());
    };
    script.system.variables["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
    refused(
        "CUDA device 1 is named for several ranks, which NCCL allows from version 2.30 on if the "
        "environment variable NCCL_MULTI_RANK_GPU_ENABLE is 1 (this is NCCL 2.28.9, and the "
        "variable is 1)");
    script.nccl.library = 23000;
    CHECK(start() == 2);
    auto const lines = script.journal.take();
    CHECK(std::count(lines.begin(), lines.end(), "set_device 1") == 4);
    script.system.variables["NCCL_MULTI_RANK_GPU_ENABLE"] = "0";
    refused("this is NCCL 2.30.0, and the variable is 0");
    script.system.variables.clear();
    refused("this is NCCL 2.30.0, and the variable is not set");
}

TEST_CASE("Ranks of one process learn each other's cause") {
    Script script;
    auto ranks = Communicator::make_group(script.interfaces(), std::array{0, 1}, script.options);
    (void)script.journal.take();
    ranks[0].abort("the reason of rank 0");
    std::int64_t value = 0;
    CHECK_THAT(message_of<Aborted>([&] {
                   ranks[1].all_reduce_integers(&value, 1, IntegerReduction::sum, script.queue());
               }),
               contains_text("the reason of rank 0"));
    CHECK(script.journal.take() == Lines{"abort", "abort"});
}

TEST_CASE("Only new collectives fail after a rank has left normally") {
    Script script;
    auto ranks = Communicator::make_group(script.interfaces(), std::array{0, 1}, script.options);
    std::int64_t value = 0;
    ranks[0].all_reduce_integers(&value, 1, IntegerReduction::sum, script.queue());
    script.system.are_events_complete = false;
    ranks.pop_back(); // the script's only switch also holds its events back, but it has no
                      // collective in flight
    int pauses = 0;
    script.system.on_pause = [&] { script.system.are_events_complete = ++pauses == 5; };
    ranks[0].synchronise(); // collectives in flight still complete
    ranks[0].all_reduce_integers(&value, 0, IntegerReduction::sum, script.queue());
    CHECK_THAT(message_of<Aborted>([&] {
                   ranks[0].all_reduce_integers(&value, 1, IntegerReduction::sum, script.queue());
               }),
               contains_text("rank 1 left the group (its communicator was destroyed)"));
}

} // namespace zero::test::nccl_start_test
