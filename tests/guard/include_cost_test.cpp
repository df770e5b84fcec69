#include "figures.hpp"
#include "support/catch.hpp"
#include "support/page.hpp"
#include "support/program.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

// The lines that a header adds to a unit, counted after the preprocessor: the library's own lines
// and headers, and the other headers that they name. The weight of those depends on the standard
// library, so all lines together are compared only for compilers that have a table. CMake defines
// ZERO_COMPILER, the compiler.

using namespace zero::test;

namespace {

namespace fs = std::filesystem;

struct IncludeCost {
    std::int64_t all_lines = 0; ///< without blank ones
    std::int64_t own_lines = 0;
    std::set<std::string> own_headers;
    std::set<std::string> other_headers; ///< as named by #include lines of the library
};

/// Lines `# <number> "<file>" ...` name the file of the lines after them.
IncludeCost cost_of(std::string const& preprocessed) {
    static std::string const own_folder = ZERO_SOURCE_DIR "/include/zero/";
    IncludeCost cost;
    bool is_own = false;
    for (auto const& line : lines_of(preprocessed)) {
        auto const first = line.find('"');
        if (line.compare(0, 2, "# ") == 0 && first != std::string::npos) {
            auto const path =
                fs::path(line.substr(first + 1, line.find('"', first + 1) - first - 1))
                    .lexically_normal()
                    .string();
            is_own = path.compare(0, own_folder.size(), own_folder) == 0;
            if (is_own) {
                cost.own_headers.insert(path.substr(own_folder.size()));
            }
        } else if (line.find_first_not_of(" \t") != std::string::npos) {
            ++cost.all_lines;
            cost.own_lines += is_own ? 1 : 0;
        }
    }
    for (auto const& header : cost.own_headers) {
        for (auto const& line : lines_of(text_of("include/zero/" + header))) {
            if (line.compare(0, 10, "#include <") == 0) {
                cost.other_headers.insert(line.substr(10, line.find('>') - 10));
            }
        }
    }
    return cost;
}

IncludeCost cost_of_header(std::string const& header, fs::path const& work) {
    auto const unit = work / "unit.cpp";
    std::ofstream(unit) << "#include <" << header << ">\n";
    auto const outcome =
        run_program("'" ZERO_COMPILER "' -std=c++20 -O2 -E '-I" ZERO_SOURCE_DIR "/include' '"
                    + unit.string() + "'");
    INFO(header);
    REQUIRE(outcome.status == 0);
    return cost_of(outcome.output);
}

std::vector<std::string> measured_headers() {
    std::vector<std::string> headers{"zero/zero.hpp"};
    for (auto const& entry : fs::directory_iterator(ZERO_SOURCE_DIR "/include/zero/policy")) {
        if (entry.is_regular_file()) {
            headers.push_back("zero/policy/" + entry.path().filename().string());
        }
    }
    return headers;
}

} // namespace

TEST_CASE("Lines count for the file that the preprocessor names") {
    std::string const own = ZERO_SOURCE_DIR "/include/zero/core/";
    auto const cost = cost_of(
        "# 1 \"unit.cpp\"\n# 1 \"" + own
        + "version.hpp\" 1\nint a;\n\n# 1 \"/usr/include/vector\" 1 3\nint b;\nint c;\n# 3 \"" + own
        + "../core/hash.hpp\" 2\n  \nint d;\n");
    CHECK(cost.all_lines == 4);
    CHECK(cost.own_lines == 2);
    CHECK(cost.own_headers == std::set<std::string>{"core/hash.hpp", "core/version.hpp"});
    CHECK(cost.other_headers.count("cstdint") == 1); // by core/hash.hpp
}

TEST_CASE("The umbrella header and the headers of policies cost as many lines as the table says") {
    auto const work =
        fs::temp_directory_path() / ("zero_include_cost_" + std::to_string(::getpid()));
    fs::create_directory(work);
    Figures own;
    Figures all;
    for (auto const& header : measured_headers()) {
        auto const cost = cost_of_header(header, work);
        own[header + " own_lines"] = cost.own_lines;
        own[header + " own_headers"] = static_cast<std::int64_t>(cost.own_headers.size());
        own[header + " other_headers"] = static_cast<std::int64_t>(cost.other_headers.size());
        all[header + " all_lines"] = cost.all_lines;
    }
    fs::remove_all(work);
    CHECK(own.at("zero/zero.hpp own_headers") > 50);
    CHECK(check_figures(table_path("include_cost"), own) == "");
    auto const table = table_path("include_lines_" + compiler_name());
    if (fs::exists(table) || is_update()) {
        CHECK(check_figures(table, all) == "");
    } else {
        std::printf("not compared: all lines, for which there is no table for %s\n",
                    compiler_name().c_str());
    }
}
