#include "comm/values.hpp"
#include "support/catch.hpp"
#include "support/program.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

// Trainings of four processes, one of which fails.

namespace zero::test::mpi_failure_runs_test {

namespace {

constexpr int ranks = 4;

std::string of_rank(int rank) {
    return "rank " + std::to_string(rank) + ": ";
}

/// Returns the number of processes on this machine whose command line contains a text.
std::size_t processes_with(std::string const& text) {
    std::size_t count = 0;
    std::error_code error;
    for (auto const& entry : std::filesystem::directory_iterator("/proc", error)) {
        std::ifstream file(entry.path() / "cmdline");
        std::string const line{std::istreambuf_iterator<char>(file), {}};
        count += line.find(text) != std::string::npos ? 1U : 0U;
    }
    return count;
}

struct Run {
    ProgramOutcome outcome;
    double seconds = 0.0;
    std::size_t left = 0; ///< processes that were left running

    [[nodiscard]] std::size_t count(std::string const& text) const {
        std::size_t found = 0;
        for (auto at = outcome.output.find(text); at != std::string::npos;
             at = outcome.output.find(text, at + 1)) {
            ++found;
        }
        return found;
    }
};

/// Runs the training. A run that does not end is killed after a minute, with status 124.
/// @param variables environment variables, such as "A=1 "
Run run(int rank, std::string const& phase, std::string const& kind, int stage,
        std::string const& variables = "") {
    auto const start = std::chrono::steady_clock::now();
    static int runs = 0;
    // The last argument names the run, because other tests run the same program.
    std::string const name = "run-" + std::to_string(::getpid()) + '-' + std::to_string(++runs);
    Run result;
    result.outcome =
        run_program(variables + "timeout -k 5 60 " + ZERO_MPI_LAUNCH + " -n "
                    + std::to_string(ranks) + " '" + ZERO_FAILING_RANK + "' " + std::to_string(rank)
                    + ' ' + phase + ' ' + kind + ' ' + std::to_string(stage) + ' ' + name);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // The launcher of MPICH returns a moment before the last process has ended.
    auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do {
        result.left = processes_with(name);
    } while (result.left != 0 && std::chrono::steady_clock::now() < until);
    return result;
}

std::vector<std::string> phases() {
    return {"construct", "gather", "backward", "reduce", "step", "publish"};
}

} // namespace

TEST_CASE("Without a failure all ranks succeed, and MPI is finalised") {
    for (int const stage : {0, 2, 3}) {
        Run const run_ = run(0, "none", "throw", stage);
        INFO(run_.outcome.output);
        CHECK(run_.outcome.status == 0);
        CHECK(run_.count(": success\n") == ranks);
        CHECK(run_.count(": finalised\n") == ranks);
        CHECK(run_.left == 0);
    }
}

TEST_CASE("A rank that throws ends the others with its cause, and MPI_Finalize returns") {
    int failing = 0;
    for (std::string const& phase : phases()) {
        for (int const stage : {0, 2, 3}) {
            failing = (failing + 1) % ranks;
            Run const run_ = run(failing, phase, "throw", stage);
            INFO(phase << " in stage " << stage << ": " << run_.outcome.output);
            CHECK(run_.outcome.status != 0);
            CHECK(run_.outcome.status != 124);
            CHECK(run_.count("success") == 0);
            CHECK(run_.outcome.contains(of_rank(failing) + "the cause in phase " + phase));
            CHECK(run_.count("Aborted: zero: the group was aborted: rank " + std::to_string(failing)
                             + ": the cause in phase " + phase)
                  == ranks - 1);
            CHECK(run_.left == 0);
        }
    }
}

TEST_CASE("A rank that hangs is named by the others with the operation and its number") {
    for (std::string const phase : {"construct", "backward", "step"}) {
        Run const run_ = run(2, phase, "hang", 3, "ZERO_TEST_TIME_OUT_MS=3000 ");
        INFO(phase << ": " << run_.outcome.output);
        CHECK(run_.outcome.status != 0);
        CHECK(run_.outcome.status != 124);
        CHECK(run_.count("success") == 0);
        // mpirun may kill the rank that timed out before its line arrives; then its peers tell it.
        CHECK(run_.count("waited 3000 ms for rank ") >= 1);
        CHECK(run_.count("rank 2 (last heard of ") >= 1);
        CHECK(run_.count(", in collective ") >= 1);
        CHECK(run_.left == 0);
    }
}

TEST_CASE(
    "A rank that hangs is the only one that is named, after the time-out and one wait for the "
    "transfers") {
    Run const run_ = run(2, "backward", "hang", 2, "ZERO_TEST_TIME_OUT_MS=3000 ");
    INFO(run_.seconds << " s: " << run_.outcome.output);
    for (int const rank : {0, 1, 3}) { // which wait for one another as well
        CHECK(run_.count("rank " + std::to_string(rank) + " (last heard of ") == 0);
    }
    CHECK(run_.count("rank 2 (last heard of ") >= 1);
    CHECK(run_.count(": times finish_time_out: 1\n") >= 1);
    CHECK(run_.count(": times finish_time_out: 1\n") == run_.count(": times finish_time_out: "));
}

TEST_CASE("A job that is stopped as a whole for longer than its time-out goes on") {
    Run const run_ = run(1, "backward", "pause", 2, "ZERO_TEST_TIME_OUT_MS=2500 ");
    INFO(run_.outcome.output);
    CHECK(run_.seconds > 4.0);
    CHECK(run_.outcome.status == 0);
    CHECK(run_.count(": success\n") == ranks);
}

TEST_CASE("The cause is told when the exception also destroys the communicator of the training") {
    for (std::string const phase : {"backward", "step"}) {
        Run const run_ = run(3, phase, "throw", 2, "ZERO_TEST_SPLIT=1 ");
        INFO(phase << ", " << run_.seconds << " s: " << run_.outcome.output);
        CHECK(
            run_.count("Aborted: zero: the group was aborted: rank 3: the cause in phase " + phase)
            == ranks - 1);
        CHECK(run_.left == 0);
    }
}

TEST_CASE(
    "In groups a rank that throws ends all others with its cause, and one that is killed ends "
    "all, whichever group they are in") {
    auto const all = phases();
    int number = 0;
    for (std::string const role : {"hybrid", "secondary", "model", "experts"}) {
        std::string const groups = "ZERO_TEST_GROUPS=" + role + ' ';
        Run const good = run(0, "none", "throw", 3, groups);
        INFO(role << ": " << good.outcome.output);
        CHECK(good.count(": success\n") == ranks);
        for (std::string const kind : {"throw", "kill"}) {
            for (int turn = 0; turn < 2; ++turn) {
                ++number;
                int const failing = number % ranks;
                std::string const& phase = all[static_cast<std::size_t>(number) % all.size()];
                Run const run_ = run(failing, phase, kind, 2 + turn, groups);
                INFO(role << ", rank " << failing << ", " << kind << " in phase " << phase << ", "
                          << run_.seconds << " s: " << run_.outcome.output);
                CHECK(run_.outcome.status != 0);
                CHECK(run_.outcome.status != 124);
                CHECK(run_.count("success") == 0);
                CHECK(run_.left == 0);
                if (kind == "throw") { // as the rank among those that share its part of the model
                    int const named = role == "model" || role == "experts" ? failing / 2 : failing;
                    CHECK(run_.count("Aborted: zero: the group was aborted: rank "
                                     + std::to_string(named) + ": the cause in phase " + phase)
                          == ranks - 1);
                }
            }
        }
    }
}

TEST_CASE("Where gathers have a communicator of their own, a rank that throws, hangs or is killed "
          "ends all ranks") {
    std::string const own = "ZERO_TEST_OWN_GATHERS=1 ";
    Run const good = run(0, "none", "throw", 3, own);
    INFO(good.outcome.output);
    CHECK(good.count(": success\n") == ranks);
    CHECK(good.count(": finalised\n") == ranks);
    int failing = 0;
    for (std::string const phase : {"gather", "backward", "reduce", "publish"}) {
        failing = (failing + 1) % ranks;
        Run const thrown = run(failing, phase, "throw", 3, own);
        INFO("rank " << failing << " throws in phase " << phase << ": " << thrown.outcome.output);
        CHECK(thrown.outcome.status != 0);
        CHECK(thrown.outcome.status != 124);
        CHECK(thrown.count("success") == 0);
        CHECK(thrown.count("Aborted: zero: the group was aborted: rank " + std::to_string(failing)
                           + ": the cause in phase " + phase)
              == ranks - 1);
        CHECK(thrown.left == 0);
    }
    for (std::string const phase : {"gather", "backward"}) {
        Run const hung = run(2, phase, "hang", 3, own + "ZERO_TEST_TIME_OUT_MS=3000 ");
        INFO("rank 2 hangs in phase " << phase << ": " << hung.outcome.output);
        CHECK(hung.outcome.status != 0);
        CHECK(hung.outcome.status != 124);
        CHECK(hung.count("waited 3000 ms for rank ") >= 1);
        CHECK(hung.count("rank 2 (last heard of ") >= 1);
        CHECK(hung.left == 0);
        Run const killed = run(1, phase, "kill", 3, own);
        INFO("rank 1 is killed in phase " << phase << ": " << killed.outcome.output);
        CHECK(killed.outcome.status != 0);
        CHECK(killed.outcome.status != 124);
        CHECK(killed.count("success") == 0);
        CHECK(killed.left == 0);
    }
}

TEST_CASE("A rank that leaves early is named by the others") {
    Run const run_ = run(1, "none", "leave", 2);
    INFO(run_.outcome.output);
    CHECK(run_.outcome.status != 0);
    CHECK(run_.count("Aborted: zero: the group was aborted: rank 1 left the group") == ranks - 1);
    CHECK(run_.left == 0);
}

TEST_CASE("A rank that takes another learning rate ends all ranks, which learn both calls") {
    Run const run_ = run(3, "none", "disagree", 2);
    INFO(run_.outcome.output);
    CHECK(run_.outcome.status != 0);
    CHECK(run_.count("success") == 0);
    CHECK(run_.count("CollectiveMismatch: zero: in collective ") == ranks);
    // The launcher may end the others as soon as one has returned an error.
    CHECK(run_.count(": finalised\n") >= 1);
    CHECK(run_.left == 0);
}

TEST_CASE("Where the launcher lets the others run, they name the rank that was killed") {
    if (std::string(ZERO_MPI_LAUNCH).find("--oversubscribe") == std::string::npos) {
        std::puts("skipped: no launcher that lets the others run; mpiexec of MPICH ends them all");
        SUCCEED();
        return;
    }
    // A rank that cannot finalise ends all, so it waits until the others have told, also on a busy
    // machine.
    std::string const recovery =
        "OMPI_MCA_orte_enable_recovery=1 OMPI_MCA_orte_abort_on_non_zero_status=0 "
        "ZERO_TEST_TIME_OUT_MS=3000 ZERO_TEST_FINISH_MS=10000 ";
    for (std::string const groups : {"", "ZERO_TEST_GROUPS=model ", "ZERO_TEST_GROUPS=experts "}) {
        Run const run_ = run(2, "reduce", "kill3", 3, groups + recovery);
        INFO(groups << run_.outcome.output);
        CHECK(run_.outcome.status != 124);
        CHECK(run_.count("success") == 0);
        for (int const rank : {0, 1, 3}) {
            CHECK(run_.count(of_rank(rank) + "TimedOut: zero: rank ")
                      + run_.count(of_rank(rank) + "Aborted: zero: ")
                  == 1);
        }
        CHECK(run_.count("waited 3000 ms for rank ") >= ranks - 1);
        // A group names it by its number there: 1 of the ranks with the same part, 0 of its copy.
        std::size_t const named = run_.count("rank 2 (last heard of ");
        CHECK((named != 0 || !groups.empty()));
        CHECK(named + run_.count("rank 1 (last heard of ") + run_.count("rank 0 (last heard of ")
              >= ranks - 1);
        CHECK(run_.left == 0);
        CHECK(files_in_memory() == 0);
    }
}

namespace {

/// Kills a random rank in each phase in turn, at any unit of any micro-step.
/// @param groups whether training runs on groups of parts of a model or of experts
void check_kills(bool const groups) {
    char const* const wanted = std::getenv("ZERO_MPI_KILLS");
    int const kills = wanted == nullptr ? 12 : std::atoi(wanted);
    auto const all = phases();
    std::size_t const before = files_in_memory();
    for (int number = 0; number < kills; ++number) {
        std::uint64_t const random = mix(static_cast<std::uint64_t>(number));
        int const failing = static_cast<int>(random % ranks);
        std::string const& phase = all[static_cast<std::size_t>(number) % all.size()];
        int const stage = groups ? static_cast<int>(2 + (random >> 8U) % 2)
                                 : std::vector<int>{0, 2, 3}[(random >> 8U) % 3];
        std::string const variables = !groups                    ? ""
                                      : (random >> 16U) % 3 == 0 ? "ZERO_TEST_GROUPS=model "
                                                                 : "ZERO_TEST_GROUPS=experts ";
        bool const comes_often = phase == "gather" || phase == "backward" || phase == "reduce";
        std::string const kind = "kill" + std::to_string(comes_often ? (random >> 24U) % 6 : 0);
        Run const run_ = run(failing, phase, kind, stage, variables);
        INFO(variables << kind << ", rank " << failing << " in phase " << phase << " of stage "
                       << stage << ", " << run_.seconds << " s: " << run_.outcome.output);
        CHECK(run_.outcome.status != 0);
        CHECK(run_.outcome.status != 124); // no rank hangs
        CHECK(run_.count("success") == 0);
        CHECK(run_.left == 0);
        CHECK(files_in_memory() <= before); // what ranks share has no name
    }
}

} // namespace

TEST_CASE("A rank that is killed at any moment ends all ranks, and none of them reports success") {
    check_kills(false);
}

TEST_CASE("A rank with a part of a model or with experts that is killed at any moment ends the "
          "ranks of all groups, and none of them reports success") {
    check_kills(true);
}

} // namespace zero::test::mpi_failure_runs_test
