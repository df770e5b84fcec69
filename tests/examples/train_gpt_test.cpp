#include "support/catch.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#ifdef ZERO_TRAIN_GPT // undefined where the dependencies of the example were not found

using namespace zero::test;

namespace {

// Small enough to run in a second, large enough for several buckets, padding and two blocks.
ProgramOutcome train_gpt(std::string const& arguments) {
    std::string command = std::string("'") + ZERO_TRAIN_GPT + "' " + arguments;
    for (std::string const option :
         {"--width 16", "--context 16", "--batch 2", "--bucket-bytes 4096"}) {
        if (arguments.find(option.substr(0, option.find(' '))) == std::string::npos) {
            command += ' ' + option;
        }
    }
    return run_program(command);
}

std::string text_in_file(std::string const& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

TEST_CASE("The example train_gpt verifies that all stages and partitioners end with the same bits",
          "[train_gpt]") {
    for (std::string const dtype : {"float32", "bfloat16", "float16"}) {
        for (std::string const schedule : {"boundary", "every-micro-step"}) {
            auto const outcome = train_gpt("--world 3 --accumulate 2 --verify 3 --dtype " + dtype
                                           + " --schedule " + schedule);
            INFO(outcome.output);
            CHECK(outcome.status == 0);
            std::string const last_line = "stages 0, 1, 2, 3: final parameters bit-identical\n";
            REQUIRE(outcome.output.size() > last_line.size());
            CHECK(outcome.output.substr(outcome.output.size() - last_line.size()) == last_line);
        }
    }
}

TEST_CASE(
    "Runs of train_gpt under different stages print the same hash, with another seed another one",
    "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common = "--world 2 --steps 4 --schedule boundary ";
    auto const expected = train_gpt(common + "--stage 0").after(label);
    CHECK(expected.size() == 16);
    CHECK(expected.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(train_gpt(common + "--stage 3 --partitioner round-robin").after(label) == expected);
    CHECK(train_gpt(common + "--stage 2 --bucket-bytes 100000").after(label) == expected);
    CHECK(train_gpt(common + "--stage 0 --seed 2").after(label) != expected);
    CHECK(train_gpt(common + "--stage 0 --learning-rate 0.00301").after(label) != expected);
}

TEST_CASE("Runs of train_gpt in groups print one hash in stages 1 to 3, another one than the flat "
          "run, and its hash if there is one group",
          "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common =
        "--world 4 --steps 4 --dtype bfloat16 --accumulate 2 --schedule every-micro-step ";
    auto const expected = train_gpt(common + "--stage 3 --shard 2").after(label);
    CHECK(expected.size() == 16);
    CHECK(train_gpt(common + "--stage 2 --shard 2 --partitioner round-robin").after(label)
          == expected);
    CHECK(train_gpt(common + "--stage 1 --shard 2").after(label) == expected);
    auto const flat = train_gpt(common + "--stage 3").after(label);
    CHECK(flat != expected);
    CHECK(train_gpt(common + "--stage 3 --shard 4").after(label) == flat);
    auto const refused = train_gpt(common + "--stage 3 --shard 3");
    CHECK(refused.status != 0);
    CHECK(refused.contains("--shard must divide the number of ranks"));
}

TEST_CASE("A run of train_gpt with secondary copies prints the hash of the flat run",
          "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common = "--world 4 --steps 4 --dtype bfloat16 --accumulate 2 --stage 3 ";
    CHECK(train_gpt(common + "--secondary 2").after(label) == train_gpt(common).after(label));
    auto const refused = train_gpt(common + "--secondary 3");
    CHECK(refused.status != 0);
    CHECK(refused.contains("--secondary must divide the number of ranks"));
    auto const below = train_gpt("--world 4 --steps 4 --dtype bfloat16 --stage 2 --secondary 2");
    CHECK(below.status != 0);
    CHECK(below.contains("--secondary needs --dtype bfloat16, stage 3"));
}

TEST_CASE("Runs of train_gpt with weights in codes print one hash in stages 1 to 3, and "
          "another one for each codec",
          "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common =
        "--world 3 --steps 4 --dtype bfloat16 --accumulate 2 --schedule every-micro-step ";
    auto const plain = train_gpt(common + "--stage 3").after(label);
    auto const expected = train_gpt(common + "--stage 3 --wire int8").after(label);
    CHECK(expected.size() == 16);
    CHECK(expected != plain);
    CHECK(train_gpt(common + "--stage 2 --wire int8 --partitioner round-robin").after(label)
          == expected);
    CHECK(train_gpt(common + "--stage 1 --wire int8 --bucket-bytes 10000").after(label)
          == expected);
    auto const smaller = train_gpt(common + "--stage 2 --wire int4").after(label);
    CHECK(smaller != expected);
    CHECK(smaller != plain);
    CHECK(train_gpt(common + "--stage 3 --wire int4").after(label) == smaller);
    std::string const both = common + "--wire int8 --wire-gradients int4 ";
    auto const gradients = train_gpt(both + "--stage 3").after(label);
    CHECK(gradients != expected);
    CHECK(train_gpt(both + "--stage 1 --bucket-bytes 10000").after(label) == gradients);
    CHECK(train_gpt(both + "--stage 2 --feedback float").after(label) != gradients);
    auto const alone = train_gpt("--world 2 --steps 4 --stage 2 --wire-gradients int4");
    CHECK(alone.status != 0);
    CHECK(alone.contains("--wire-gradients needs --wire int8"));
    auto const refused = train_gpt("--world 2 --steps 4 --stage 2 --wire int8");
    CHECK(refused.status != 0);
    CHECK(refused.contains("--wire needs --dtype bfloat16, a stage of 1 to 3"));
}

TEST_CASE("The example train_gpt shows progress, the losses to beat, memory and traffic",
          "[train_gpt]") {
    auto const outcome = train_gpt("--world 2 --steps 3");
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    for (std::string const text :
         {"loss", "tokens/s", "remaining", "validation loss", "unigram", "bigram",
          "planned / allocated", "optimizer state", "reduce-scatter", "by formula"}) {
        INFO(text);
        CHECK(outcome.contains(text));
    }
}

TEST_CASE("The example train_gpt writes a trace of its last steps and shows how much communication "
          "was hidden, with the same bits",
          "[train_gpt]") {
    TemporaryFolder const folder;
    std::string const label = "\nparameters: ";
    std::string const common = "--world 2 --steps 5 --stage 2 ";
    std::string const file = (folder / "trace.json").string();
    auto const outcome = train_gpt(common + "--timeline '" + file + "'");
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    CHECK(outcome.contains("exposed ms"));
    auto const plain = train_gpt(common);
    CHECK(!plain.contains("exposed ms"));
    CHECK(outcome.after(label) == plain.after(label));
    std::string const trace = text_in_file(file);
    for (std::string const text :
         {"\"rank 1\"", "communication queue", "gradients of bucket 0", "\"cat\":\"publish\"",
          "\"cat\":\"update\"", "forward 0", "backward 3"}) {
        INFO(text);
        CHECK(trace.find(text) != std::string::npos);
    }
    std::size_t forwards = 0; // one for each of 3 steps and 2 ranks
    for (std::size_t at = trace.find("\"forward 0\""); at != std::string::npos;
         at = trace.find("\"forward 0\"", at + 1)) {
        ++forwards;
    }
    CHECK(forwards == 6);
    CHECK(train_gpt("--verify 1 --world 1 --timeline '" + file + "'").status != 0);
}

TEST_CASE("The example train_gpt with a tree of micro-batches ends with one hash on 1, 2, 4 and 8 "
          "ranks, on one level and two",
          "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common = "--steps 4 --dtype bfloat16 --micro-batches 8 ";
    std::string const expected = train_gpt(common + "--world 1 --stage 2").after(label);
    CHECK(expected.size() == 16);
    for (std::string const arguments :
         {"--world 2 --stage 3", "--world 4 --stage 0",
          "--world 8 --stage 1 --partitioner round-robin", "--world 8 --stage 2 --inner-ranks 2",
          "--world 4 --stage 3 --inner-ranks 2"}) {
        auto const found = train_gpt(common + arguments);
        INFO(found.output);
        CHECK(found.status == 0);
        CHECK(found.after(label) == expected);
    }
    for (std::string const dtype : {"float32", "float16"}) {
        std::string const other = "--steps 4 --micro-batches 8 --dtype " + dtype;
        std::string const alone = train_gpt(other + " --world 1 --stage 1").after(label);
        CHECK(alone.size() == 16);
        CHECK(train_gpt(other + " --world 4 --stage 3 --inner-ranks 2").after(label) == alone);
    }
    // the same batches in rank order
    std::string const two = train_gpt(common + "--world 2 --in-rank-order").after(label);
    CHECK(two != expected);
    CHECK(train_gpt(common + "--world 4 --in-rank-order").after(label) != two);
    CHECK(train_gpt(common + "--verify 1 --world 2").contains("bit-identical"));
    CHECK(train_gpt(common + "--world 3").contains("possible numbers of ranks are 1, 2, 4, 8."));
    CHECK(train_gpt("--inner-ranks 3 --world 4").contains("--inner-ranks must divide"));
    CHECK(train_gpt("--steps 4 --inner-ranks 2 --world 4").after(label)
          != train_gpt("--steps 4 --world 4").after(label));
    CHECK(train_gpt(common + "--offload file").contains("--micro-batches needs states in memory"));
    CHECK(train_gpt(common + "--accumulate 2").contains("--accumulate excludes --micro-batches"));
}

TEST_CASE("The example train_gpt skips steps above a norm", "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common = "--world 2 --steps 3 ";
    auto const plain = train_gpt(common);
    CHECK(train_gpt(common + "--skip-above-norm 1e9").after(label) == plain.after(label));
    auto const skipped = train_gpt(common + "--skip-above-norm 1e-9"); // all of them
    INFO(skipped.output);
    CHECK(skipped.status == 0);
    CHECK_FALSE(skipped.after(label) == plain.after(label));
    CHECK(skipped.after(label)
          == train_gpt("--world 3 --stage 3 --steps 2 --skip-above-norm 1e-9").after(label));
    CHECK(train_gpt(common + "--skip-above-norm=-1").contains("skip_above_norm.limit is -1"));
}

TEST_CASE("The example train_gpt shows what stage 3 gathered, and no limit changes a bit",
          "[train_gpt]") {
    std::string const label = "\nparameters: ";
    std::string const common = "--world 2 --steps 4 --accumulate 2 --stage 3 ";
    auto const plain = train_gpt(common);
    INFO(plain.output);
    CHECK(plain.status == 0);
    CHECK(plain.contains("0 micro-steps left the recorded order"));
    for (std::string const options :
         {"--prefetch-elements 8000", "--persistence-threshold 100",
          "--persistence-threshold 100 --max-persistent-elements 300", "--max-reuse-distance 4000",
          "--keep-after-forward 2", "--max-live-elements 10000", "--update-tile-elements 500"}) {
        auto const limited = train_gpt(common + options);
        INFO(options << limited.output);
        CHECK(limited.status == 0);
        CHECK(limited.after(label) == plain.after(label));
        CHECK(limited.contains("0 micro-steps left the recorded order"));
    }
    auto const small = train_gpt(common + "--max-live-elements 100");
    CHECK(small.status != 0);
    CHECK(small.contains("max_live_elements is 100, but unit "));
}

TEST_CASE("The example train_gpt whose weights and states do not fit into the memory of a rank "
          "keeps them in files, and ends with the same bits",
          "[train_gpt]") {
    auto const other_type = train_gpt("--offload file");
    if (other_type.contains("needs xxHash")) {
        return;
    }
    CHECK(other_type.contains("--dtype float32"));
    TemporaryFolder const folder;
    std::string const label = "\nparameters: ";
    std::string const common = "--world 4 --stage 3 --dtype bfloat16 --steps 3 --width 32 "
                               "--layers 24 --bucket-bytes 20000 ";
    auto const expected = train_gpt(common);
    INFO(expected.output);
    auto const parameters = std::stoul(expected.output.substr(
        expected.output.rfind('\n', expected.output.find(" parameters; validation")) + 1));
    // Of 14 bytes for each parameter (weight, master weight and two moments) a rank holds 3.5. Its
    // sums of gradients take 1, and without the weights in the file it would need more than 2.
    std::string const limit = " --memory-limit " + std::to_string(parameters * 2) + " ";
    auto const in_memory = train_gpt(common + limit);
    CHECK(in_memory.status != 0);
    CHECK(in_memory.contains("--memory-limit leaves "));
    std::string const in_files = limit + "--offload file --offload-path '" + folder.path().string()
                                 + "' --offload-chunk-bytes 16384 --offload-page-cache ";
    auto const offloaded = train_gpt(common + in_files);
    INFO(offloaded.output);
    CHECK(offloaded.status == 0);
    CHECK(offloaded.contains("in a file"));
    CHECK(offloaded.after(label).size() == 16);
    CHECK(offloaded.after(label) == expected.after(label));
    CHECK(train_gpt(common + in_files + "--offload-ratio 0").contains("--memory-limit leaves "));
    CHECK(std::filesystem::is_empty(folder.path()));
    // A delayed update trains to bits of its own, the same in every stage and world of one batch.
    std::string const late = "--layers 2 --steps 12 --dtype bfloat16 --offload file --delayed "
                             "--offload-path '"
                             + folder.path().string() + "' --offload-page-cache --world 2 ";
    auto const one = train_gpt(late + "--stage 1");
    INFO(one.output);
    CHECK(one.status == 0);
    CHECK(one.after(label).size() == 16);
    CHECK(train_gpt(late + "--stage 3").after(label) == one.after(label));
    auto const prompt = train_gpt("--layers 2 --steps 12 --dtype bfloat16 --world 2 --stage 1");
    CHECK(prompt.after(label).size() == 16);
    CHECK(prompt.after(label) != one.after(label));
    CHECK(train_gpt("--delayed").contains("--delayed needs --offload file"));
}

TEST_CASE("The example train_gpt refuses what it cannot do and says why", "[train_gpt]") {
    auto const stage = train_gpt("--stage 4");
    CHECK(stage.status != 0);
    CHECK(stage.contains("--stage"));
    auto const width = train_gpt("--width 50");
    CHECK(width.status != 0);
    CHECK(width.contains("multiple of 16, but is 50"));
    auto const text = train_gpt("--text /does/not/exist");
    CHECK(text.status != 0);
    CHECK(text.contains("/does/not/exist"));
}

#endif
