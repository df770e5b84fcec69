#include "support/catch.hpp"
#include "support/program.hpp"

#include <filesystem>
#include <random>
#include <string>

#include <unistd.h>

// A training that is stopped and resumed ends like one that was never stopped.

#if defined(ZERO_TRAIN_GPT)                                                                        \
    && defined(ZERO_CONSOLIDATE) // the latter needs zero::checkpoint as well

using namespace zero::test;

namespace {

class Folder {
public:
    explicit Folder(std::string const& name)
        : _path(std::filesystem::temp_directory_path()
                / ("zero-" + name + "-" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(_path);
    }
    Folder(Folder const&) = delete;
    Folder& operator=(Folder const&) = delete;
    ~Folder() { std::filesystem::remove_all(_path); }
    [[nodiscard]] std::string path() const { return _path.string(); }

private:
    std::filesystem::path _path;
};

ProgramOutcome train_gpt(std::string const& arguments) {
    return run_program(std::string("'") + ZERO_TRAIN_GPT
                       + "' --width 16 --context 16 --batch 2 --bucket-bytes 4096 --steps 40 "
                         "--schedule boundary "
                       + arguments);
}

std::string const label = "\nparameters: ";

} // namespace

TEST_CASE(
    "A training that was stopped ten times at random steps, and resumed under other stages and "
    "partitioners, ends with the bits of one that ran through",
    "[train_gpt]") {
    std::mt19937 random(7);
    for (std::string const dtype : {"float32", "bfloat16", "float16"}) {
        Folder const folder("resume-" + dtype);
        std::string const common = "--world 3 --dtype " + dtype + " ";
        auto const expected = train_gpt(common + "--stage 2").after(label);
        REQUIRE(expected.size() == 16);
        std::string resume;
        int stop = 0;
        for (int part = 0; part < 10; ++part) {
            stop += 1 + static_cast<int>(random() % 3);
            auto const outcome =
                train_gpt(common + resume + "--save " + folder.path() + " --stop-after "
                          + std::to_string(stop) + " --stage " + std::to_string(random() % 4)
                          + (random() % 2 == 0 ? " --partitioner round-robin" : ""));
            INFO(outcome.output);
            REQUIRE(outcome.status == 0);
            CHECK(outcome.after(label) != expected); // the training has not ended
            resume = "--resume " + folder.path() + " ";
        }
        CHECK(train_gpt(common + resume + "--stage 1").after(label) == expected);
    }
}

TEST_CASE("A training goes on with another number of ranks", "[train_gpt]") {
    Folder const folder("ranks");
    std::string const save = "--save " + folder.path() + " ";
    std::string const resume = "--resume " + folder.path() + " ";
    CHECK(train_gpt(save + "--world 4 --stage 2 --stop-after 9").status == 0);
    CHECK(train_gpt(save + resume + "--world 3 --stage 3 --stop-after 19").status == 0);
    auto const last = train_gpt(resume + "--world 4 --stage 1");
    INFO(last.output);
    CHECK(last.status == 0);
    CHECK(last.contains("resumed from step-00000019"));
    CHECK(last.contains("step    40/40"));
}

TEST_CASE("The example consolidate makes one file of a checkpoint", "[train_gpt]") {
    Folder const folder("consolidate");
    REQUIRE(
        train_gpt("--world 2 --dtype bfloat16 --save " + folder.path() + " --stop-after 4").status
        == 0);
    std::string const program = std::string("'") + ZERO_CONSOLIDATE + "' ";
    std::string const file = folder.path() + "/full.safetensors";
    auto const done = run_program(program + folder.path() + " " + file);
    INFO(done.output);
    CHECK(done.status == 0);
    CHECK(done.contains("100%"));
    CHECK(std::filesystem::file_size(file) > 4096);
    CHECK(run_program(program + folder.path() + " " + file).status == 1); // the file exists already
    CHECK(run_program(program + "/nowhere " + file + "2").contains("/nowhere"));
    CHECK(run_program(program).contains("usage"));
}

TEST_CASE("A resume without checkpoints says so", "[train_gpt]") {
    Folder const folder("empty");
    auto const outcome = train_gpt("--resume " + folder.path());
    CHECK(outcome.status != 0);
    CHECK(outcome.contains("no complete checkpoint"));
}

#endif
