// Trainings by processes. They run torch_process; trainer_process.cpp describes what it does.

#include "no_check_macro.hpp"

#include "comm/values.hpp"
#include "support/catch.hpp"
#include "support/program.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace zero::test::processes_test {

namespace {

/// Runs this many ranks as processes, or all of them as threads of one process for 0.
std::vector<ProgramOutcome> outcomes(int world, std::string const& what,
                                     std::string const& transport = "memory") {
    auto const store = std::filesystem::temp_directory_path()
                       / ("zero_torch_" + what + std::to_string(::getpid()));
    std::vector<ProgramOutcome> result(world == 0 ? 1 : static_cast<std::size_t>(world));
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
        threads.emplace_back([&, rank] {
            result[rank] = run_program("exec '" ZERO_TORCH_PROCESS "' " + std::to_string(rank) + " "
                                       + std::to_string(world) + " '" + store.string() + "' " + what
                                       + ' ' + transport);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::filesystem::remove(store);
    return result;
}

} // namespace

TEST_CASE("Two processes over gloo train to the bits of two threads") {
    auto const threads = outcomes(0, "train");
    CHECK(threads[0].status == 0);
    CHECK(threads[0].after("hash ").size() == 16);
    for (std::string const transport : {"memory", "messages"}) {
        auto const processes = outcomes(2, "train", transport);
        CHECK(processes[0].output == threads[0].output);
        CHECK(processes[0].status == 0);
        CHECK(processes[1].output.empty());
        CHECK(processes[1].status == 0);
    }
}

TEST_CASE("A process that is killed ends the other at once, with a sentence") {
    for (std::string const transport : {"memory", "messages"}) {
        auto const processes = outcomes(2, "kill", transport); // the time-out is half an hour
        INFO(processes[0].output);
        CHECK(processes[1].status == -1); // no exit code: a signal
        CHECK(processes[0].status == 1);
        CHECK(processes[0].contains("zero: rank 0 was in collective "));
        CHECK(processes[0].contains(transport == "memory" ? ", and the process of rank 1 has ended"
                                                          : "and the backend 'gloo' failed: "));
        CHECK(processes[0].contains("A peer has ended, or the network has failed"));
    }
}

TEST_CASE("Every process that is left is told what to do, also by the cause of another one") {
    for (std::string const transport : {"memory", "messages"}) {
        auto const processes = outcomes(4, "kill", transport);
        for (std::size_t const rank : {0U, 2U, 3U}) {
            INFO(transport << ", rank " << rank << ": " << processes[rank].output);
            CHECK(processes[rank].status == 1);
            CHECK(processes[rank].contains("start all ranks again, from a checkpoint"));
        }
    }
}

TEST_CASE("A process that is killed at any moment ends the other, and leaves no memory behind") {
    char const* const wanted = std::getenv("ZERO_TORCH_KILLS");
    int const kills = wanted == nullptr ? 4 : std::atoi(wanted);
    std::size_t const before = files_in_memory();
    for (int number = 0; number < kills; ++number) {
        std::uint64_t const microseconds = mix(static_cast<std::uint64_t>(number)) % 100'000;
        auto const processes = outcomes(2, "kill_after_" + std::to_string(microseconds));
        INFO(microseconds << " us: " << processes[0].output);
        CHECK(processes[1].status == -1);
        CHECK(processes[0].status == 1);
        CHECK(processes[0].contains("start all ranks again, from a checkpoint"));
        CHECK(files_in_memory() <= before); // what ranks share has no name
    }
}

TEST_CASE("A process that throws ends the other with its message") {
    auto const processes = outcomes(2, "throw");
    INFO(processes[0].output);
    CHECK(processes[1].status == 1);
    CHECK(processes[1].output == "the data of rank 1 are damaged\n");
    CHECK(processes[0].status == 1);
    CHECK(processes[0].contains(
        "zero: the group was aborted: rank 1: the data of rank 1 are damaged; rank 0 was in "));
}

} // namespace zero::test::processes_test
