#include "figures.hpp"
#include "support/catch.hpp"
#include "support/page.hpp"
#include "support/program.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

// The cost of compiling a composition, as memory that the compiler allocates: unlike a time it does
// not depend on the machine or on its load. Only g++ reports it. CMake defines ZERO_COMPILER.

using namespace zero::test;

namespace {

namespace fs = std::filesystem;

/// A trainer's unit: constructs a stage and trains one step.
char const* const unit = R"(
int main() {
    zero::run_ranks(2, [](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator, std::vector<Zero::Registration>{{.name = "w", .elements = 1000}});
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            auto const weights = engine.acquire(0);
            auto const gradients = engine.gradients(0);
            gradients[0][0] = weights[0][0];
            engine.gradients_ready(0);
        }
        (void)engine.step(0.1).report();
    });
}
)";

char const* const composition = R"(
#include <zero/zero.hpp>
#include <zero/stage/declare_stage.hpp>
using Zero = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Lion>;
)";

/// The last number of the line TOTAL in the report, in MB; 0 if there is none.
std::int64_t allocated_megabytes(std::string const& report) {
    for (auto const& line : lines_of(report)) {
        if (line.find(" TOTAL ") == 0) {
            std::istringstream words(line);
            std::string last;
            while (words >> last) {}
            bool const is_kilobytes = last.back() == 'k' || last.back() == 'K';
            return std::stoll(last) / (is_kilobytes ? 1000 : 1);
        }
    }
    return 0;
}

std::int64_t cost_of(fs::path const& work, std::string const& flags, std::string const& text) {
    auto const file = (work / "unit.cpp").string();
    std::ofstream(file) << text;
    auto const outcome = run_program("'" ZERO_COMPILER "' -std=c++20 -O2 -ftime-report " + flags
                                     + " -c '-I" ZERO_SOURCE_DIR "/include' '" + file + "' -o '"
                                     + (work / "unit.o").string() + "' 2>&1");
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
    return allocated_megabytes(outcome.output);
}

} // namespace

TEST_CASE("Compiled and declared stages cost a unit as much as the table says") {
    if (compiler_name().compare(0, 3, "gcc") != 0) {
        std::puts("skipped: no report of the memory that this compiler allocates");
        return;
    }
    auto const work =
        fs::temp_directory_path() / ("zero_compile_cost_" + std::to_string(::getpid()));
    fs::create_directory(work);
    std::string const headers = std::string(composition) + unit;
    std::string const declared = std::string(composition) + "ZERO_DECLARE_STAGE(Zero);" + unit;
    Figures figures;
    figures["include MB"] = cost_of(work, "", composition);
    figures["headers MB"] = cost_of(work, "", headers);
    figures["zero::compiled MB"] = cost_of(work, "-DZERO_COMPILED", headers);
    figures["declared MB"] = cost_of(work, "", declared);
    figures["zero::compiled, declared MB"] = cost_of(work, "-DZERO_COMPILED", declared);
    fs::remove_all(work);

    // Whatever the version: each way is cheaper than the one before.
    CHECK(figures["zero::compiled MB"] < figures["headers MB"]);
    CHECK(figures["declared MB"] < figures["zero::compiled MB"]);
    CHECK(figures["zero::compiled, declared MB"] < figures["declared MB"]);
    auto const table = table_path("compile_memory_" + compiler_name());
    if (fs::exists(table) || is_update()) {
        CHECK(check_figures(table, figures) == "");
    } else {
        std::printf("not compared: there is no table for %s\n", compiler_name().c_str());
    }
}
