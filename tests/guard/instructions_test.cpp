#include "figures.hpp"
#include "support/catch.hpp"
#include "support/program.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

// The number of instructions that each hot loop executes per 1000 elements, and a step per 1000
// parameters or units, counted by callgrind. The figures depend on code and compiler, not on the
// machine. CMake defines ZERO_VALGRIND, the path of valgrind or empty, and ZERO_COUNTED, the
// counted program or empty.

using namespace zero::test;

namespace {

/// Instructions per call, by loop and number of elements, parameters or units.
using Counts = std::map<std::string, std::map<std::int64_t, std::int64_t>>;

/// A file of counts has the lines `desc: Trigger: Client Request: <loop> <elements>` and `totals:
/// <instructions>`. The last file, for the end of the program, has another trigger.
void read_counts(std::filesystem::path const& path, Counts& counts) {
    static std::string const trigger = "desc: Trigger: Client Request: ";
    static std::string const totals = "totals: ";
    std::ifstream file(path);
    std::string loop;
    std::int64_t elements = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, trigger.size(), trigger) == 0) {
            auto const space = line.rfind(' ');
            loop = line.substr(trigger.size(), space - trigger.size());
            elements = std::stoll(line.substr(space));
        } else if (line.compare(0, totals.size(), totals) == 0 && !loop.empty()) {
            counts[loop][elements] = std::stoll(line.substr(totals.size()));
        }
    }
}

/// Returns the cost of 1000 elements, parameters or units. The fixed cost of a call is in both
/// counts and cancels out.
Figures per_1000(Counts const& counts) {
    Figures figures;
    for (auto const& [loop, by_elements] : counts) {
        REQUIRE(by_elements.size() == 2);
        auto const [n, few] = *by_elements.begin();
        auto const [twice, more] = *by_elements.rbegin();
        REQUIRE(twice == 2 * n);
        figures[loop] = (more - few) * 1000 / n;
    }
    return figures;
}

} // namespace

TEST_CASE("The cost of 1000 elements is the difference of two calls") {
    CHECK(per_1000({{"cast", {{500, 2100}, {1000, 4100}}}}) == Figures{{"cast", 4000}});
}

TEST_CASE("The hot loops and the steps execute as many instructions as the table says") {
    std::string const valgrind = ZERO_VALGRIND;
    std::string const program = ZERO_COUNTED;
    std::string const table = table_path("instructions_" + compiler_name());
    std::string const missing =
        program.empty()    ? "x86-64 with g++ or clang++ and no further flags"
        : valgrind.empty() ? "valgrind"
        : !std::filesystem::exists(table) && !is_update()
            ? "figures for " + compiler_name()
                  + "; ZERO_GUARD_UPDATE=1 in the environment makes the table"
            : "";
    if (!missing.empty()) {
        std::printf("skipped: no %s\n", missing.c_str());
        SUCCEED();
        return;
    }
    std::filesystem::path const work = program + ".counts";
    std::filesystem::remove_all(work);
    std::filesystem::create_directory(work);
    auto const outcome =
        run_program("'" + valgrind + "' --tool=callgrind --instr-atstart=no '--callgrind-out-file="
                    + (work / "counts").string() + "' '" + program + "'");
    if (outcome.status != 0) {
        FAIL(outcome.output);
    }
    Counts counts;
    for (auto const& entry : std::filesystem::directory_iterator(work)) {
        read_counts(entry.path(), counts);
    }
    auto const figures = per_1000(counts);
    CHECK(figures.count("update/float32/baseline") == 1);
    auto const is_measurable = [&](std::string const& loop) {
        return !outcome.contains("not on this machine: avx2")
               || loop.find("/avx2") == std::string::npos;
    };
    CHECK(check_figures(table, figures, is_measurable) == "");
}
