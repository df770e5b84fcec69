#include "publish.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint_directory.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// Which checkpoints stay when older ones are removed.

namespace zero::test::keep_last_test {

TEST_CASE("Checkpoints are ordered by their numbers, whatever a copy made of their times") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    int second = 100;
    for (char const* const name : {"step-8", "step-00000009", "best", "step-00000010", "step-100",
                                   "step-00000000000000000000099", "epoch-2"}) {
        publish(directory, name, second);
        second -= 10; // the newest has the oldest time
    }
    CHECK(directory.complete()
          == Names{"best", "epoch-2", "step-8", "step-00000009", "step-00000010",
                   "step-00000000000000000000099", "step-100"});
    set_content(folder / "latest", "step-100\n");
    directory.keep_last(1, "best");
    CHECK(directory.complete().size() == 7);
    directory.keep_last(2, "step-00000010");
    CHECK(directory.complete()
          == Names{"best", "epoch-2", "step-00000000000000000000099", "step-100"});
    directory.keep_last(1); // counts "step-..." as well
    CHECK(directory.complete() == Names{"best", "epoch-2", "step-100"});
    std::filesystem::remove(folder / "latest");
    CHECK(directory.latest() == "step-100");
}

TEST_CASE("The last checkpoints are kept, and the latest always") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    for (int i = 1; i <= 5; ++i) {
        publish(directory, std::to_string(i), i);
    }
    directory.keep_last(7, "1");
    CHECK(directory.complete() == Names{"1", "2", "3", "4", "5"});
    directory.keep_last(3, "1");
    CHECK(directory.complete() == Names{"3", "4", "5"});
    set_content(folder / "latest", "3\n");
    directory.keep_last(1, "1");
    CHECK(directory.complete() == Names{"3", "5"});
    directory.keep_last(0, "1");
    CHECK(directory.complete() == Names{"3"});
    CHECK(entries(folder.path()) == Names{"3", "latest"});
}

TEST_CASE("A save after going back keeps its own checkpoints and those of the later steps") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    std::vector<Names> found;
    run_ranks(1, test_time_out, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        auto const save = [&](std::uint64_t step) {
            engine.set_step_count(step);
            save_checkpoint(engine, folder.path(), {.keep_last = 2});
            found.push_back(directory.complete());
        };
        for (std::uint64_t const step : {90U, 100U, 180U, 200U}) {
            engine.set_step_count(step);
            save_checkpoint(engine, folder.path());
        }
        load_checkpoint(engine, folder.path(), {.name = "step-00000100"});
        for (std::uint64_t const step : {110U, 120U, 190U, 200U, 210U}) {
            save(step);
        }
    });
    std::string const s = "step-00000";
    CHECK(found
          == std::vector<Names>{{s + "100", s + "110", s + "180", s + "200"},
                                {s + "110", s + "120", s + "180", s + "200"},
                                {s + "180", s + "190", s + "200"}, // passed: 180 is the older one
                                {s + "190", s + "200"},
                                {s + "200", s + "210"}});
}

TEST_CASE("Of two names with one number the one that was saved stays") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "step-8", 2);
    publish(directory, "step-08", 1);
    set_content(folder / "latest", "step-8\n");
    directory.keep_last_up_to(1, "step-08");
    CHECK(directory.complete() == Names{"step-08", "step-8"});
    directory.keep_last(1, "step-08");
    CHECK(directory.complete() == Names{"step-8"});
}

} // namespace zero::test::keep_last_test
