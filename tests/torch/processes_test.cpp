// Trainings by processes. They run torch_process; trainer_process.cpp describes what it does.

#include "support/catch.hpp"
#include "support/program.hpp"

#include <filesystem>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace zero::test::processes_test {

namespace {

/// Runs this many ranks as processes, or all of them as threads of one process for 0.
std::vector<ProgramOutcome> outcomes(int world, std::string const& what) {
    auto const store = std::filesystem::temp_directory_path()
                       / ("zero_torch_" + what + std::to_string(::getpid()));
    std::vector<ProgramOutcome> result(world == 0 ? 1 : static_cast<std::size_t>(world));
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
        threads.emplace_back([&, rank] {
            result[rank] =
                run_program("exec '" ZERO_TORCH_PROCESS "' " + std::to_string(rank) + " "
                            + std::to_string(world) + " '" + store.string() + "' " + what);
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
    auto const processes = outcomes(2, "train");
    CHECK(threads[0].status == 0);
    CHECK(threads[0].after("hash ").size() == 16);
    CHECK(processes[0].output == threads[0].output);
    CHECK(processes[0].status == 0);
    CHECK(processes[1].output.empty());
    CHECK(processes[1].status == 0);
}

TEST_CASE("A process that is killed ends the other at once, with a sentence") {
    auto const processes = outcomes(2, "kill"); // the time-out is half an hour
    INFO(processes[0].output);
    CHECK(processes[1].status == -1); // no exit code: a signal
    CHECK(processes[0].status == 1);
    CHECK(processes[0].contains("zero: rank 0 was in collective "));
    CHECK(processes[0].contains("and the backend 'gloo' failed: "));
    CHECK(processes[0].contains("A peer has ended, or the network has failed"));
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
