#include "support/catch.hpp"
#include "support/page.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

// The program zero-plan: what it prints, and what it refuses.

namespace zero::test::program_test {

#ifdef ZERO_PLAN_FOLDER

namespace {

ProgramOutcome run(std::string const& arguments) {
    return run_program(ZERO_PLAN_FOLDER "/zero-plan " + arguments);
}

/// Returns the six lines of code that a run prints.
std::string code_in(std::string const& output) {
    std::size_t const begin = output.find("using Stage = ");
    std::string const last = "Stage engine(communicator, parameters, options);\n";
    std::size_t const end = output.find(last);
    return begin == std::string::npos || end == std::string::npos
               ? ""
               : output.substr(begin, end + last.size() - begin);
}

} // namespace

TEST_CASE("The planner prints figure 1 of the ZeRO paper") {
    auto const outcome = run_program(ZERO_PLAN_FOLDER "/zero-plan --parameters 7.5e9 --ranks 64");
    CHECK(outcome.status == 0);
    CHECK(outcome.after("model states") == "               120.0      31.4      16.6       1.9");
    // 2 P (W - 1) / W elements of 2 bytes, and 3 P (W - 1) / W in stage 3: 29.53 and 44.30.
    CHECK(outcome.after("read in a step") == "              29.5      29.5      29.5      44.3");
}

TEST_CASE("The planner names what sets the size of the leases of Llama-3 8B") {
    auto const outcome =
        run_program(ZERO_PLAN_FOLDER "/zero-plan --model llama3-8b --ranks 8 --accumulate-bytes 4");
    std::string const units =
        "  unit 33: 1.05 GB in 2 parameters, the largest is 'head' with 1.05 GB\n"
        "  unit 32: 436.22 MB in 9 parameters, the largest is 'layer31.gate' with 117.44 MB\n";
    std::string const gradients = "gradient leases (1.49 GB) at their peak:\n" + units;
    CHECK(outcome.contains("\nstages 0 to 2\n" + gradients + "\nstage 3\n" + gradients
                           + "parameter leases (1.49 GB) at their peak:\n" + units));
}

TEST_CASE("The planner predicts the seconds that a step communicates on a network") {
    // Three layers of 2^20 elements of 2 bytes on 4 ranks. One level: a call takes 3 messages of 1
    // s; a rank reads 4.5 * 2^20 B of the one bucket of stages 0 to 2 and 1.5 * 2^20 B of each of
    // the three of stage 3, which gathers twice. Control: a call of 2 messages, and a few bytes.
    std::string const layers = "/zero-plan --parameters 3145728 --layers 3 --ranks 4 ";
    auto const one = run_program(ZERO_PLAN_FOLDER + layers + "--latency 1 --bandwidth 1048576");
    CHECK(one.status == 0);
    CHECK(one.after("\ngathers ") == "                       0         0         0        27");
    CHECK(one.after("\nreductions ") == "                   15       7.5       7.5      13.5");
    CHECK(one.after("\npublishes ") == "                     0       7.5       7.5         0");
    CHECK(one.after("\ncontrol ") == "                       2         2         2         2");
    CHECK(one.after("\ncommunication ") == "                17        17        17      42.5");
    // Three micro-steps: three reductions in stages 2 and 3, and three times as many gathers.
    auto const three =
        run_program(ZERO_PLAN_FOLDER + layers + "--latency 1 --bandwidth 1048576 --micro-steps 3");
    CHECK(three.after("\ngathers ") == "                       0         0         0        81");
    CHECK(three.after("\nreductions ") == "                   15       7.5      22.5      40.5");
    // Two hosts, hierarchically: half of a bucket inside, and half of it between at half the speed,
    // with one message each: 2 + 3 + 6 s, and 2 + 1 + 2 s in stage 3.
    auto const hosts =
        run_program(ZERO_PLAN_FOLDER + layers
                    + "--latency 1 --bandwidth 1048576 --ranks-per-host 2 --bandwidth-between "
                      "524288 --algorithm hierarchical");
    CHECK(hosts.after("\nreductions ") == "                   22        11        11        15");
    // Without a network there are no seconds.
    CHECK(!run_program(ZERO_PLAN_FOLDER + layers).contains("communication"));
}

TEST_CASE("The planner plans 10^12 parameters and one rank, and refuses invalid arguments") {
    // 16e12 / 1024 = 15.625e9; optimizer state 12e12 / 1024 = 11.72e9
    auto const large =
        run_program(ZERO_PLAN_FOLDER "/zero-plan --parameters 1e12 --ranks 1024 --layers 128");
    CHECK(large.contains("model states             16000.0    4011.7    2013.7      15.6\n"));
    auto const one = run_program(ZERO_PLAN_FOLDER "/zero-plan --ranks 1");
    CHECK(one.contains("model states               120.0     120.0     120.0     120.0\n"));
    CHECK(one.contains("read in a step               0.0       0.0       0.0       0.0\n"));
    for (char const* arguments :
         {"7.5e9",
          "--ranks",
          "--ranks 0",
          "--ranks 1.5",
          "--ranks many",
          "--parameters nan",
          "--layers 100 --parameters 99",
          "--model",
          "--model gpt",
          "--model gpt2 --layers 3",
          "--latency 1e-6",
          "--bandwidth 0",
          "--bandwidth 1e9 --latency -1",
          "--micro-steps 0",
          "--bandwidth 1e9 --ranks-per-host 8",
          "--bandwidth 1e9 --bandwidth-between 1e9",
          "--bandwidth 1e9 --algorithm direct",
          "--bandwidth 1e9 --latency-between 0",
          "--bandwidth 1e9 --ranks-per-host 7 --bandwidth-between 1e9",
          "--bandwidth 1e9 --ranks-per-host 8 --bandwidth-between 1e9 --algorithm tree"}) {
        INFO(arguments);
        auto const refused = run_program(std::string(ZERO_PLAN_FOLDER "/zero-plan ") + arguments);
        CHECK(refused.status == 2);
        CHECK(refused.contains("zero-plan: "));
    }
    for (char const* arguments : {"--help", "--ranks 8 --help"}) {
        auto const help = run_program(std::string(ZERO_PLAN_FOLDER "/zero-plan ") + arguments);
        CHECK(help.status == 0);
        CHECK(help.contains("zero-plan --model MODEL --memory 80GB --ranks 64"));
        CHECK(help.contains("--latency 5e-6 --bandwidth 25e9"));
        CHECK(!help.contains("stage 0"));
    }
}

TEST_CASE("The planner lists what fits, and recommends the lowest stage of equal cost") {
    auto const roomy = run("--model llama3-8b --memory 80GB --ranks 64 --link 50GB/s");
    CHECK(roomy.status == 0);
    CHECK(roomy.contains("llama3-8b: 8030261248 parameters in 34 units on 64 ranks of 80.00 GB, 1 "
                         "micro-step a step; bytes: 2 a parameter, 4 a gradient"));
    CHECK(roomy.contains("\n 1     1         51.20          1.49"));
    CHECK(code_in(roomy.output)
          == "using Stage = zero::ZeroStage<1, zero::AdamW, zero::Parameters<zero::bfloat16>, "
             "Communicator>;\n"
             "Stage::Options options;\n"
             "options.bucketer.bucket_bytes = 26214400;\n"
             "options.reduction.one_micro_step = false;\n"
             "options.reduction.schedule = zero::ReductionSchedule::boundary;\n"
             "Stage engine(communicator, parameters, options);\n");
    auto const narrow = run("--model llama3-8b --memory 16GB --ranks 64 --link 50GB/s");
    CHECK(narrow.contains("zero::ZeroStage<3, "));
    // The rows of stages 1 and 2, which take more, are left out.
    CHECK_FALSE(narrow.contains("\n 1     1 "));
    auto const host = run("--model llama3-8b --memory 12GB --ranks 8 --tier-rate 20e9");
    CHECK(host.status == 0);
    CHECK(host.contains("on the device alone nothing fits; with states on its host:\n"));
    CHECK(code_in(host.output).find("zero::Offload<zero::To<zero::HostMemory")
          != std::string::npos);
}

TEST_CASE("The planner says by how much nothing fits, and what would help") {
    auto const none = run("--model llama3-8b --memory 1GB --ranks 8");
    CHECK(none.status == 1);
    CHECK(none.contains("nothing fits: the smallest, stage 3 (one unit at a time, "));
    CHECK(none.contains(" too much\n- no number of ranks suffices"));
    CHECK(none.contains("the largest is 'head' with 1.05 GB"));
    CHECK(code_in(none.output).empty());
}

TEST_CASE("The planner prints the same as JSON") {
    using nlohmann::json;
    json const fits =
        json::parse(run("--model gpt2 --memory 80GB --ranks 8 --link 400Gb/s --json").output);
    CHECK(fits.at("memory_bytes") == 80'000'000'000);
    CHECK(fits.at("parameters") == 124'439'808);
    json const& first = fits.at("fitting").at(0);
    auto const text = run("--link 50GB/s --json --model gpt2 --memory 80e9B --ranks 8");
    CHECK(json::parse(text.output).at("fitting").at(0) == first); // 400 Gb/s
    CHECK(first.at("memory").at("engine_bytes") <= 80'000'000'000);
    auto const printed = run("--model gpt2 --memory 80GB --ranks 8 --link 50GB/s");
    CHECK(first.at("code") == code_in(printed.output));
    json const none = json::parse(run("--model gpt2 --memory 1MB --ranks 8 --json").output);
    CHECK(none.at("fitting").empty());
    CHECK(none.at("missing_bytes").get<std::size_t>()
          == none.at("smallest").at("memory").at("engine_bytes").get<std::size_t>() - 1'000'000);
    CHECK(none.at("remedies").size() == 3);
    json const stages = json::parse(run("--parameters 7.5e9 --ranks 64 --json").output);
    CHECK(stages.at("stages").size() == 4);
    CHECK(stages.at("stages").at(0).at("memory").at("model_state_bytes") == 120'000'000'000);
}

TEST_CASE("The planner prints what groups and codes cost") {
    auto const stages = [](std::string const& arguments) {
        return nlohmann::json::parse(
            run("--parameters 3145728 --layers 3 --ranks 4 --json " + arguments).output)["stages"];
    };
    auto const bytes = [](nlohmann::json const& stage, char const* row) {
        auto const& rows = stage["memory"]["rows"];
        return rows.contains(row) ? rows[row]["content_bytes"].get<std::size_t>() : 0;
    };
    std::string const four_bits = "--shard 2 --wire-gradients int4 ";
    auto const groups = stages(four_bits + "--feedback float");
    auto const eight = stages(four_bits + "--feedback int8 --wire-between int8");
    for (std::size_t const stage : {0U, 1U, 2U, 3U}) {
        bool const has_groups = stage != 0;
        CAPTURE(stage);
        CHECK(bytes(groups[stage], "gradient errors") == (has_groups ? 3145728 * 4 : 0));
        CHECK(bytes(eight[stage], "gradient errors") == (has_groups ? 3145728 / 64 * 66 : 0));
        // 2 P b (R - 1) / (G R)
        CHECK(groups[stage]["read_between_bytes"] == (has_groups ? 3145728 / 64 * 34 / 2 : 0));
        CHECK(eight[stage]["read_between_bytes"] == (has_groups ? 3145728 / 64 * 66 / 2 : 0));
    }
    auto const adapters = stages("--adapters 3072 --wire-frozen int8");
    CHECK(bytes(adapters[3], "parameters") == 3145728 / 64 * 66 / 4 + 3072 * 2 / 4);
    CHECK(bytes(adapters[2], "parameters") == (3145728 + 3072) * 2);
    auto const table = run("--ranks 64 --shard 8 --wire-gradients int4 --feedback float");
    CHECK(table.after("gradient errors") == "              0.0      30.0      30.0      30.0");
    CHECK(table.after("of it between groups") == "         0.0       0.9       0.9       0.9");
    for (char const* arguments :
         {"--feedback float", "--wire-gradients int4 --feedback plain", "--wire float",
          "--wire-between int8", "--shard 7", "--shard 8 --wire-between plain",
          "--shard 8 --wire-gradients int4 --wire-between int4", "--wire-frozen int8",
          "--in-tree 1 --shard 8", "--memory 80GB --shard 8",
          "--memory 80GB --wire-gradients int4 --feedback float"}) {
        INFO(arguments);
        auto const refused = run(arguments);
        CHECK(refused.status == 2);
        CHECK(refused.contains("zero-plan: --"));
    }
}

TEST_CASE("The planner serves one rank") {
    auto const one = run("--model gpt2 --memory 80GB --ranks 1 --link 50GB/s");
    CHECK(one.status == 0);
    CHECK(one.contains("using Stage = zero::ZeroStage<1, "));
}

TEST_CASE("Sizes without a sense are refused with the units") {
    for (char const* arguments :
         {"--memory 80", "--memory 80G", "--memory -80GB", "--memory 0GB", "--memory nanGB",
          "--memory infGB", "--memory GB", "--memory 80gb", "--memory '80 GB'", "--memory 80GB/s",
          "--memory 0.5B", "--memory 1e30B", "--memory 80GB --link 50", "--memory 80GB --link 50GB",
          "--memory 80GB --link -50GB/s", "--memory 80GB --link 0GB/s",
          "--memory 80GB --link 50GBps"}) {
        INFO(arguments);
        auto const refused = run(arguments);
        CHECK(refused.status == 2);
        CHECK(refused.contains("write it as "));
    }
    for (char const* arguments : {"--memory 80GB --on-host 1", "--memory 80GB --offload-ratio 1",
                                  "--memory 80GB --wire int8", "--memory 80GB --accumulate-bytes 3",
                                  "--memory", "--json 1", "--model nowhere"}) {
        INFO(arguments);
        auto const refused = run(arguments);
        CHECK(refused.status == 2);
        CHECK(refused.contains("zero-plan: "));
    }
    CHECK(run("--memory 80GiB").contains("of 85.90 GB"));
}

// The estimates are those of estimate_zero2_model_states_mem_needs (stage_1_and_2.py) and
// estimate_zero3_model_states_mem_needs (stage3.py) of DeepSpeed 0.16.4, run for 8 nodes of 8
// devices without offload: 2 P + 18 P / W, and 18 P / W with 4 bytes for each parameter of the
// largest module, which is the embedding.
TEST_CASE("The guide shows the planner's bytes beside the estimates of DeepSpeed") {
    TemporaryFolder const folder;
    set_content(folder / "qwen.json",
                R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
                    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                    "vocab_size": 152064, "tie_word_embeddings": false})");
    struct Row {
        std::string name, model;
        double elements, embedding;
        double two, three;
    };
    std::vector<Row> const rows{
        {"GPT-2 XL", "gpt2-xl", 1'557'611'200, 50257 * 1600.0, 3.55, 0.76},
        {"Qwen2 7B", (folder / "qwen.json").string(), 7'615'616'512, 152064 * 3584.0, 17.37, 4.32},
        {"Llama-3 8B", "llama3-8b", 8'030'261'248, 128256 * 4096.0, 18.32, 4.36}};
    std::string const page = text_of("docs/guides/choose_a_stage.md");
    for (Row const& row : rows) {
        CHECK(row.two == Approx(1e-9 * (2 + 18.0 / 64) * row.elements).margin(0.006));
        CHECK(row.three
              == Approx(1e-9 * (18.0 / 64 * row.elements + 4 * row.embedding)).margin(0.006));
        nlohmann::json const stages = nlohmann::json::parse(
            run("--model " + row.model + " --ranks 64 --accumulate-bytes 4 --json")
                .output)["stages"];
        auto const planned = [&](std::size_t stage) {
            return 1e-9 * stages[stage]["memory"]["engine_bytes"].get<double>();
        };
        char line[128];
        std::snprintf(line, sizeof line, "| %s | %.2f | %.2f | %.2f | %.2f |\n", row.name.c_str(),
                      row.two, planned(2), row.three, planned(3));
        INFO(line);
        CHECK(page.find(line) != std::string::npos);
    }
}

#ifdef ZERO_CXX

TEST_CASE("The code that the planner prints compiles") {
    TemporaryFolder const folder;
    std::string program = "#include <zero/zero.hpp>\n#include <zero/policy/host_memory.hpp>\n"
                          "struct Device : zero::HostBackend {\n"
                          "    static constexpr bool is_device = true;\n"
                          "    static zero::MemoryResource& staging_memory();\n};\n";
    std::vector<std::string> const runs{
        "--memory 80GB --ranks 64",                                         // stage 1
        "--memory 80GB --ranks 64 --accumulate-bytes 2",                    // in place
        "--memory 25GB --ranks 64 --micro-steps 4",                         // stage 3, kept
        "--memory 5GB --ranks 64",                                          // one unit at a time
        "--memory 20GB --ranks 64 --accumulate-bytes 2 --parameters 7.5e9", // stage 2
        "--memory 12GB --ranks 8",                                          // on the host
        "--memory 18GB --ranks 8"};
    std::string all;
    for (std::size_t index = 0; index < runs.size(); ++index) {
        bool const has_size = runs[index].find("--parameters") != std::string::npos;
        auto const outcome = run((has_size ? "" : "--model llama3-8b ") + runs[index]);
        INFO(outcome.output);
        std::string const code = code_in(outcome.output);
        REQUIRE(!code.empty());
        bool const is_on_host = code.find("HostMemory") != std::string::npos;
        program += std::string("namespace program") + std::to_string(index) + " {\n"
                   + "using Communicator = zero::Loopback<"
                   + (is_on_host ? "Device" : "zero::HostBackend") + ">;\n"
                   + "void make(Communicator& communicator, "
                     "std::vector<zero::Parameter<zero::bfloat16>> const& parameters) {\n"
                   + code + "}\n}\n";
        all += code;
    }
    for (char const* part :
         {"ZeroStage<1", "ZeroStage<2", "ZeroStage<3", "prefetch_elements = std::nullopt",
          "prefetch_elements = 0", "max_live_elements = ", "keep_until_update = ",
          "one_micro_step = true", "::every_micro_step", "::boundary", "zero::HostMemory"}) {
        INFO(part);
        CHECK(all.find(part) != std::string::npos);
    }
    auto const compile = [&](std::string const& text) {
        set_content(folder / "program.cpp", text);
        return run_program(ZERO_CXX " -std=c++20 -fsyntax-only -I" ZERO_SOURCE_DIR "/include "
                           + (folder / "program.cpp").string());
    };
    auto const outcome = compile(program);
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    program.replace(program.find("bucket_bytes"), 12, "bucket_bites");
    CHECK(compile(program).status != 0);
}

#endif

#endif

} // namespace zero::test::program_test
