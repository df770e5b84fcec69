#include "support/catch.hpp"
#include "support/page.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

// The README and the guides show programs that are compiled and run: their code is that of the
// examples, and their output is the output of the examples.

using namespace zero::test;

namespace {

std::string program_text(std::string const& name) {
    return text_of("examples/guides/" + name + ".cpp");
}

/// Returns the program without its first comment, which describes it.
std::string body_of(std::string program) {
    while (program.substr(0, 2) == "//") {
        program.erase(0, program.find('\n') + 1);
    }
    return program;
}

/// Checks that the blocks of the page show code of these files, and nothing else.
void check_code(std::string const& page, std::vector<std::string> const& files,
                std::size_t least_blocks, std::string const& language = "cpp") {
    std::string sources;
    for (std::string const& file : files) {
        sources += text_of(file);
    }
    auto const blocks = blocks_of(page, language);
    CHECK(blocks.size() >= least_blocks);
    for (std::string const& block : blocks) {
        INFO(block);
        CHECK(sources.find(block) != std::string::npos);
    }
}

/// Checks that the diffs of the page fit the first program, and that the result contains the text.
/// @param expected_lines that they add
void check_first_program(std::string const& page, std::ptrdiff_t expected_lines,
                         std::string const& text) {
    std::string program = text_of("examples/minimal.cpp");
    std::ptrdiff_t added = 0;
    for (std::string const& diff : blocks_of(page, "diff")) {
        INFO(diff);
        auto const lines = lines_of(diff);
        added += std::count_if(lines.begin(), lines.end(),
                               [](std::string const& line) { return line[0] == '+'; });
        program = patched(program, diff);
        REQUIRE_FALSE(program.empty());
    }
    CHECK(added == expected_lines);
    CHECK(program.find(text) != std::string::npos);
}

#if defined(ZERO_EXAMPLES) || defined(ZERO_PLAN_FOLDER) // where these programs were built

/// Checks that each console block shows a command, which is a program of this folder with
/// arguments, and its whole output.
void check_consoles(std::string const& page, std::size_t expected_blocks,
                    std::string const& folder) {
    auto const blocks = blocks_of(page, "console");
    CHECK(blocks.size() == expected_blocks);
    for (std::string const& block : blocks) {
        INFO(block);
        REQUIRE(block.substr(0, 2) == "$ ");
        std::size_t const end = block.find('\n');
        auto const outcome = run_program(folder + "/" + block.substr(2, end - 2));
        CHECK(outcome.status == 0);
#ifdef __x86_64__ // elsewhere compilers may fuse multiplications and additions in the models
        CHECK(outcome.output == block.substr(end + 1));
#endif
    }
}

#endif

} // namespace

TEST_CASE("The guide of LibTorch shows the code of its example") {
    std::vector<std::string> const files{"examples/torch_gpt.cpp",
                                         "examples/torch/language_model.hpp",
                                         "examples/torch/trainer.cpp"};
    check_code("docs/guides/libtorch.md", files, 6);
    check_code("docs/guides/libtorch.md", {"examples/torch/train.py"}, 1, "python");
    check_code("docs/guides/python.md", {"examples/from_python.py"}, 2, "python");
}

TEST_CASE("The diffs of the guide turn the plain trainer into that of stage 1, 2 and 3") {
    auto const diffs = blocks_of("docs/guides/existing_trainer.md", "diff");
    std::vector<std::string> const names{"stage1", "stage2", "stage3"};
    std::string program = body_of(program_text("plain"));
    std::size_t reached = 0;
    for (std::string const& diff : diffs) {
        INFO(diff);
        program = patched(program, diff);
        REQUIRE_FALSE(program.empty());
        reached +=
            reached < names.size() && program == body_of(program_text(names[reached])) ? 1 : 0;
    }
    CHECK(reached == names.size());
    CHECK(program == body_of(program_text("stage3"))); // no diff is left
}

TEST_CASE("Five lines keep the states of the first program in files") {
    check_first_program("docs/offload.md", 5, "zero::Offload<States>");
}

TEST_CASE("Five lines shard the first program over the ranks of a host") {
    check_first_program("docs/groups.md", 5, "zero::run_ranks<Hosts>(ranks, {.shard = 2}");
}

TEST_CASE("A diff that does not fit is refused") {
    CHECK(patched("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n");
    CHECK(patched("a\nb\nc\n", " a\n-c\n+d\n").empty());
    CHECK(patched("a\na\n", "-a\n").empty()); // which of the two?
    CHECK(patched("aa\n", "-a\n").empty());
}

TEST_CASE("The code of the guides is that of the examples") {
    check_code("docs/guides/choose_a_stage.md", {"src/plan/column.hpp"}, 1);
    check_code("docs/guides/recipes.md", {"examples/recipes.cpp", "examples/adapters.cpp"}, 7);
    check_code("docs/storage.md", {"examples/scattered.cpp"}, 1);
    check_code("docs/checkpoints.md", {"examples/save_and_resume.cpp"}, 2);
    check_code("docs/offload.md", {"examples/offload.cpp"}, 1);
    check_code("docs/groups.md", {"examples/model_parallel.cpp", "examples/moe_block.cpp"}, 7);
    check_code("docs/wire.md", {"examples/wire.cpp"}, 3);
    check_code("docs/same_bits.md", {"examples/same_bits.cpp"}, 4);
    check_code("docs/guides/mixed_precision.md", {"examples/mixed_precision.cpp"}, 2);
    check_code("docs/guides/debug_a_divergence.md", {"examples/guides/debug.cpp"}, 2);
    check_code("docs/guides/c_trainer.md",
               {"examples/c_trainer.c", "examples/c_resume.c", "examples/c_layers.c"}, 10, "c");
    check_code("docs/guides/large_model.md",
               {"examples/guides/large_model.cpp", "examples/tiled_linear.cpp"}, 4);
    check_code("docs/guides/own_optimizer.md",
               {"examples/guides/ada_max.hpp", "examples/guides/own_optimizer.cpp"}, 3);
    check_code("docs/guides/own_communicator.md",
               {"examples/guides/socket_communicator.hpp", "examples/guides/own_communicator.cpp"},
               4);
    CHECK(blocks_of("docs/mpi.md", "cpp").front()
          == body_of(text_of("examples/mpi_minimal.cpp")).substr(1));
    std::vector<std::string> const cuda = blocks_of("docs/cuda.md", "cpp"); // without its kernels
    CHECK(is_excerpt(cuda.at(0) + cuda.at(1), text_of("examples/cuda_minimal.cu")));
}

TEST_CASE("The first guide shows the whole minimal example") {
    std::string const program = text_of("examples/minimal.cpp");
    auto const blocks = blocks_of("docs/guides/first_program.md", "cpp");
    REQUIRE(blocks.size() == 1);
    CHECK(blocks.front() == program.substr(program.find("#include")));
}

TEST_CASE("The README shows lines of the minimal example, in order") {
    auto const blocks = blocks_of("README.md", "cpp");
    REQUIRE(blocks.size() == 1);
    CHECK(code_lines_of(blocks.front()).size() == 11);
    CHECK(is_excerpt(blocks.front(), text_of("examples/minimal.cpp")));
}

TEST_CASE("An excerpt with another line, or in another order, is refused") {
    CHECK(is_excerpt("  b; // why\n\nc;\n", "a;\nb;\nx;\nc; // there\n"));
    CHECK_FALSE(is_excerpt("b;\nd;\n", "a;\nb;\nc;\n"));
    CHECK_FALSE(is_excerpt("c;\nb;\n", "a;\nb;\nc;\n"));
}

#ifdef ZERO_EXAMPLES

TEST_CASE("The guides show what their programs print") {
    check_consoles("docs/guides/existing_trainer.md", 4, ZERO_EXAMPLES);
    check_consoles("docs/guides/mixed_precision.md", 1, ZERO_EXAMPLES);
    check_consoles("docs/guides/debug_a_divergence.md", 1, ZERO_EXAMPLES);
    check_consoles("docs/guides/own_optimizer.md", 1, ZERO_EXAMPLES);
    check_consoles("docs/guides/own_communicator.md", 1, ZERO_EXAMPLES);
}

TEST_CASE("The picture of sharding is what its program draws") {
    auto const drawn = run_program(ZERO_EXAMPLES "/draw_sharding");
    CHECK(drawn.status == 0);
    CHECK(drawn.output == text_of("docs/sharding.svg"));
}

TEST_CASE("The plain trainer and all stages of the guide reach the same loss, and the stages the "
          "same bits") {
    std::string const one = run_program(ZERO_EXAMPLES "/guide_stage1").after("loss ");
    double const plain = std::stod(run_program(ZERO_EXAMPLES "/guide_plain").after("loss "));
    CHECK(std::fabs(std::stod(one) - plain) < 1e-2 * plain);
    CHECK(run_program(ZERO_EXAMPLES "/guide_stage2").after("loss ") == one);
    CHECK(run_program(ZERO_EXAMPLES "/guide_stage3").after("loss ") == one);
}

#endif

#ifdef ZERO_PLAN_FOLDER

TEST_CASE("The guide to a stage shows what the planner prints") {
    check_consoles("docs/guides/choose_a_stage.md", 2, ZERO_PLAN_FOLDER);
}

TEST_CASE("The README shows what the planner prints for Llama-3 8B") {
    std::string const page = text_of("README.md");
    std::string const command = "zero-plan --model llama3-8b --ranks 8 --accumulate-bytes 4";
    REQUIRE(page.find('`' + command + '`') != std::string::npos);
    auto const outcome = run_program(ZERO_PLAN_FOLDER "/" + command);
    CHECK(outcome.status == 0);
    for (std::string const label :
         {"\nparameters ", "\ngradients ", "\noptimizer state ", "\nmodel states ",
          "\nleases, padding, wire ", "\nall ", "\nall, in one unit "}) {
        INFO(label);
        std::istringstream numbers(outcome.after(label));
        std::string row = " |";
        std::string bold_row = " |";
        std::size_t count = 0;
        for (std::string number; numbers >> number; ++count) {
            row += ' ' + number + " |";
            bold_row += " **" + number + "** |";
        }
        CHECK(count == 4);
        bool const is_shown = page.find(row) != std::string::npos;
        CHECK((is_shown || page.find(bold_row) != std::string::npos));
    }
}

#endif
