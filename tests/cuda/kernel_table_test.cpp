#include "support/catch.hpp"
#include "support/page.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

// The table of docs/cuda.md that says where each kernel ran. The column of PTX is compared with
// what the interpreter launched by cuda/ptx/check_launched.cmake; a device is seen by people.

namespace zero::test::kernel_table_test {

namespace {

namespace fs = std::filesystem;

/// Returns all that a group of an expression matches.
std::vector<std::string> all_of(std::string const& text, std::string const& expression) {
    std::regex const compiled(expression);
    std::vector<std::string> found;
    for (std::sregex_iterator match(text.begin(), text.end(), compiled);
         match != std::sregex_iterator(); ++match) {
        found.push_back((*match)[1]);
    }
    return found;
}

/// Returns the names of the kernels in headers, sorted.
std::vector<std::string> kernels_of_headers() {
    std::string const kernel = R"((?:ZERO_KERNEL|__global__) void)"
                               R"((?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\()";
    std::vector<std::string> names;
    for (auto const& entry :
         fs::recursive_directory_iterator(ZERO_SOURCE_DIR "/include/zero/cuda")) {
        if (entry.is_regular_file()) {
            auto const path = fs::relative(entry.path(), ZERO_SOURCE_DIR).generic_string();
            auto const found = all_of(text_of(path), kernel);
            names.insert(names.end(), found.begin(), found.end());
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// A row of the table: its kernels, then whether they ran on the emulated device, in PTX and on a
/// device.
struct Row {
    std::vector<std::string> kernels;
    std::vector<std::string> cells;
};

std::vector<Row> table() {
    std::vector<Row> rows;
    for (std::string const& line : lines_of(text_of("docs/cuda.md"))) {
        if (std::regex_search(line, std::regex(R"(^\| `\w+_kernel`)"))) {
            Row row;
            std::istringstream cells(line.substr(1));
            for (std::string cell; std::getline(cells, cell, '|');) {
                row.cells.push_back(cell);
            }
            row.kernels = all_of(row.cells.at(0), R"(`(\w+_kernel)`)");
            rows.push_back(row);
        }
    }
    return rows;
}

} // namespace

TEST_CASE("The page of CUDA has each kernel in one row, which says where it ran") {
    std::vector<std::string> named;
    for (Row const& row : table()) {
        named.insert(named.end(), row.kernels.begin(), row.kernels.end());
        INFO(row.cells[0]);
        REQUIRE(row.cells.size() == 4);
        for (std::size_t cell = 1; cell < 4; ++cell) {
            CHECK(std::regex_search(row.cells[cell], std::regex("^ (yes|no)\\b")));
        }
    }
    std::sort(named.begin(), named.end());
    auto const kernels = kernels_of_headers();
    CHECK(kernels.size() > 15);
    CHECK(named == kernels);
}

TEST_CASE("Every file of device tests that is interpreted as PTX runs on the emulated device, so "
          "the table has no kernel of PTX alone") {
    std::string const emulated = text_of("tests/cuda/emulated/CMakeLists.txt");
    std::regex const interpreted(
        all_of(text_of("tests/cuda/ptx/CMakeLists.txt"), R"re(ZERO_PTX_FILES "([^"]+)")re").at(0));
    int count = 0;
    for (auto const& entry : fs::directory_iterator(ZERO_SOURCE_DIR "/tests/cuda")) {
        std::string const file = entry.path().filename().string();
        if (std::regex_search(file, std::regex("^(?!nccl_|fast_math|gpt_model).*_test\\.cu$"))
            && std::regex_search(file, interpreted)) {
            INFO(file);
            std::string const name = file.substr(0, file.size() - std::string("_test.cu").size());
            CHECK(std::regex_search(emulated, std::regex("device_tests[^)]*[ ]" + name + "[ )]")));
            ++count;
        }
    }
    CHECK(count > 8);
    for (Row const& row : table()) {
        INFO(row.cells[0]);
        CHECK((row.cells[1].rfind(" yes", 0) == 0 || row.cells[2].rfind(" no", 0) == 0));
    }
}

} // namespace zero::test::kernel_table_test
