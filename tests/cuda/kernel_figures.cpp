#include "cuda/sass.hpp"
#include "guard/figures.hpp"
#include "support/catch.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

// What the compiled kernels cost: registers of a thread, and instructions that a warp executes for
// each 256 elements. CMake defines ZERO_NVDISASM, the path of nvdisasm or empty, ZERO_NVCC_NAME,
// and ZERO_KERNELS, the folder of the compiled kernels. How many atomic additions the norms take,
// and what a step launches, is in emulated/atomics_test.cu and emulated/launches_test.cu.

using namespace zero::test;

namespace {

struct Row {
    std::string label;
    std::string kernel;    ///< a part of the name
    std::string operation; ///< one that its loop executes
    std::size_t loads;     ///< of 16 bytes, for 8 elements of a thread
};

Row update_row(std::string const& label, std::string const& optimizer, std::string const& weights,
               std::string const& states, std::size_t loads) {
    return {"update " + label,
            "update_kernel<zero::" + optimizer + ", zero::UpdateSlice<float, zero::" + weights
                + ", zero::" + states + " >",
            "STG.E.128", loads};
}

std::vector<Row> rows() {
    std::string const master = "MasterPointers<float, zero::bfloat16>";
    std::string const one_state = "StatePointers<1ul, float>";
    std::string const states = "StatePointers<2ul, float>";
    std::string const scaled = "ScaledStatePointers<2ul, zero::float16>";
    std::vector<Row> result{
        update_row("AdamW, float", "AdamW", "MasterPointers<float, float>", states, 8),
        update_row("AdamW, bfloat16 with masters", "AdamW", master, states, 8),
        update_row("AdamW, bfloat16 with masters, scaled states", "AdamW", master, scaled, 6),
        update_row("AdamW, split masters", "AdamW", "SplitPointers", states, 8),
        update_row("AdamW, split masters, scaled states", "AdamW", "SplitPointers", scaled, 6),
        update_row("AdamW, bfloat16 by stochastic rounding", "AdamW",
                   "StochasticPointers<zero::bfloat16>", states, 7),
        update_row("Lion, bfloat16 with masters", "Lion", master, one_state, 6),
        update_row("SGD, bfloat16 with masters", "Sgd", master, one_state, 6),
        {"cast float to bfloat16", "convert_kernel<false, zero::bfloat16, float>", "STG.E.128", 2},
        {"accumulate bfloat16 in float", "accumulate_kernel<float, zero::bfloat16>", "STG.E.128",
         3},
    };
    for (std::string const type : {"float", "bfloat16", "float16"}) {
        std::string const name = type == "float" ? type : "zero::" + type;
        std::size_t const loads = type == "float" ? 2 : 1;
        result.push_back({"inspect " + type, "inspect_kernel<" + name + ">", "DADD", loads});
        std::string const norms = "norms_kernel<(zero::NormKind)";
        result.push_back({"norm l1 " + type, norms + "0, " + name + ">", "DADD", loads});
        result.push_back({"norm l2 " + type, norms + "1, " + name + ">", "DADD", loads});
        if (type == "float") { // the others are unrolled in other ways
            result.push_back({"norm infinity " + type, norms + "2, " + name + ">", "", loads});
        }
    }
    return result;
}

std::string read(std::filesystem::path const& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the registers of a kernel in the report of ptxas, by the kernel's name in the source.
std::map<std::string, std::int64_t> registers(std::string const& report) {
    static std::regex const entry(
        "Compiling entry function '([^']*)'[\\s\\S]*?Used ([0-9]+) registers");
    std::map<std::string, std::int64_t> result;
    for (std::sregex_iterator at(report.begin(), report.end(), entry), end; at != end; ++at) {
        result[demangled((*at)[1].str())] = std::stoll((*at)[2].str());
    }
    return result;
}

} // namespace

TEST_CASE(
    "The shortest way around a loop of a kernel passes what it must, and no-operations do not "
    "count") {
    auto const kernels = parse_sass(".text._Z3onev:\n"
                                    "        /*0000*/                   S2R R0, SR_TID.X ;\n"
                                    ".L_x_1:\n"
                                    "        /*0010*/                   LDG.E.128 R4, [R2.64] ;\n"
                                    "        /*0020*/              @!P0 BRA `(.L_x_2) ;\n"
                                    "        /*0030*/                   DADD R4, R4, R6 ;\n"
                                    "        /*0040*/                   NOP ;\n"
                                    "        /*0050*/                   DADD R4, R4, R6 ;\n"
                                    ".L_x_2:\n"
                                    "        /*0060*/                   BRA P1, `(.L_x_1) ;\n"
                                    "        /*0070*/                   EXIT ;\n"
                                    ".text.two:\n"
                                    "        /*0000*/                   EXIT ;\n");
    REQUIRE(kernels.size() == 2);
    CHECK(kernels[0].name == "one()");
    CHECK(kernels[0].instructions.size() == 8);
    CHECK(kernels[1].name == "two");
    CHECK(shortest_loop(kernels[0], "") == SassLoop{3, 1});
    CHECK(shortest_loop(kernels[0], "DADD") == SassLoop{5, 1});
    CHECK(shortest_loop(kernels[0], "STG") == std::nullopt);
    CHECK(kernels[0].successors(2) == std::vector<std::size_t>{6, 3});
    CHECK(kernels[0].successors(7).empty());
}

TEST_CASE("Kernels use as many registers and instructions as the table says") {
    std::string const disassembler = ZERO_NVDISASM;
    std::string const table = table_path("kernels_" ZERO_NVCC_NAME);
    std::string const missing = disassembler.empty() ? "nvdisasm"
                                : !std::filesystem::exists(table) && !is_update()
                                    ? "figures for " ZERO_NVCC_NAME
                                    : "";
    if (!missing.empty()) {
        std::printf("skipped: no %s\n", missing.c_str());
        SUCCEED();
        return;
    }
    Figures figures;
    for (std::string const architecture : {"80", "90", "100", "120"}) {
        std::filesystem::path const folder = std::filesystem::path(ZERO_KERNELS) / architecture;
        auto const report = registers(read(folder / "ptxas.log"));
        auto const outcome = run_program("'" + disassembler + "' -c '"
                                         + (folder / "all_kernels.cubin").string() + "'");
        REQUIRE(outcome.status == 0);
        auto const kernels = parse_sass(outcome.output);
        for (Row const& row : rows()) {
            CAPTURE(architecture, row.label);
            auto const is_row = [&](SassKernel const& kernel) {
                return kernel.name.find(row.kernel) != std::string::npos;
            };
            auto const kernel = std::find_if(kernels.begin(), kernels.end(), is_row);
            REQUIRE(kernel != kernels.end());
            CHECK(std::count_if(kernels.begin(), kernels.end(), is_row) == 1);
            auto const loop = shortest_loop(*kernel, row.operation);
            REQUIRE(loop.has_value());
            REQUIRE(loop->loads % row.loads == 0); // several packs in an unrolled loop
            REQUIRE(report.count(kernel->name) == 1);
            std::string const label = "sm_" + architecture + '/' + row.label;
            figures[label + "/instructions"] =
                static_cast<std::int64_t>(loop->instructions * row.loads / loop->loads);
            figures[label + "/registers"] = report.at(kernel->name);
        }
    }
    CHECK(check_figures(table, figures, [](std::string const&) { return true; }) == "");
}
