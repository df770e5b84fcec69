#include "engine_model.hpp"
#include "support/captured_errors.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Checkpoints that are written in the background.

namespace zero::test::checkpoint_saver_test {

namespace {

using namespace engine_model;

Bits loaded_state(std::filesystem::path const& folder, std::string const& name) {
    return on_ranks<Bits>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<1>> toy(communicator, same_schedule<ZeroStage<1>>());
        load_checkpoint(*toy.engine, folder, {.name = name});
        return state_of(*toy.engine);
    })[0];
}

} // namespace

TEST_CASE("A checkpoint in the background holds the state of its start") {
    TemporaryFolder const folder;
    struct Seen {
        Bits started;
        std::optional<std::string> name;
        std::optional<std::string> polled;
    };
    auto const seen = on_ranks<Seen>(3, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator, same_schedule<ZeroStage<2>>());
        train(*toy.engine, communicator, 0, 3);
        CheckpointSaver saver(*toy.engine, folder.path());
        Seen own;
        own.started = state_of(*toy.engine);
        saver.start();
        train(*toy.engine, communicator, 3, 4);
        own.name = saver.wait();
        saver.start({.name = "second"});
        while (!own.polled) {
            own.polled = saver.poll();
        }
        saver.start({.name = "third"}); // without wait()
        return own;
    });
    for (Seen const& own : seen) {
        CHECK(own.name == "step-00000003");
        CHECK(own.polled == "second");
    }
    CHECK(loaded_state(folder.path(), "step-00000003") == seen[0].started);
    CHECK(CheckpointDirectory(folder.path()).complete()
          == std::vector<std::string>{"second", "third", "step-00000003"});
    CHECK(CheckpointDirectory(folder.path()).latest() == "third");
    CHECK(loaded_state(folder.path(), "third") == loaded_state(folder.path(), "second"));
}

TEST_CASE("A saver that publishes an older step later does not become the latest") {
    TemporaryFolder const folder;
    using Names = std::vector<std::optional<std::string>>;
    auto const seen = on_ranks<Names>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator, same_schedule<ZeroStage<2>>());
        CheckpointDirectory const directory(folder.path());
        train(*toy.engine, communicator, 0, 2);
        CheckpointSaver slow(*toy.engine, folder.path());
        slow.start({.name = "best"});
        train(*toy.engine, communicator, 2, 4);
        Names own;
        save_checkpoint(*toy.engine, folder.path());
        own.push_back(directory.latest());
        slow.wait();
        own.push_back(directory.latest());                             // of step 4, not 2
        save_checkpoint(*toy.engine, folder.path(), {.name = "best"}); // the same step
        own.push_back(directory.latest());
        return own;
    });
    CHECK(seen[0] == Names{"step-00000004", "step-00000004", "best"});
    CHECK(CheckpointDirectory(folder.path()).complete()
          == std::vector<std::string>{"best", "step-00000004"});
}

TEST_CASE("Two savers and save_checkpoint write in one directory without harm to one another") {
    TemporaryFolder const folder;
    auto const seen = on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator, same_schedule<ZeroStage<2>>());
        train(*toy.engine, communicator, 0, 2);
        CheckpointSaver regular(*toy.engine, folder.path());
        CheckpointSaver best(*toy.engine, folder.path());
        regular.start();
        best.start({.name = "best"});
        Outcome const refused =
            outcome_of([&] { save_checkpoint(*toy.engine, folder.path(), {.name = "best"}); });
        save_checkpoint(*toy.engine, folder.path(), {.name = "now"});
        (void)best.wait();
        (void)regular.wait();
        save_checkpoint(*toy.engine, folder.path(), {.name = "best"});
        return refused;
    });
    INFO(seen[0].message);
    CHECK(seen[0].message.find("the checkpoint 'best' is being written") != std::string::npos);
    CHECK(seen[0].message.find("CheckpointSaver::wait()") != std::string::npos);
    CHECK(seen[1].message.find("the checkpoint 'best' is being written") != std::string::npos);
    CHECK(CheckpointDirectory(folder.path()).complete().size() == 3);
    Bits const state = loaded_state(folder.path(), "now");
    CHECK(loaded_state(folder.path(), "step-00000002") == state);
    CHECK(loaded_state(folder.path(), "best") == state);
}

TEST_CASE("A saver that an exception destroys says which checkpoint it drops") {
    TemporaryFolder const folder;
    std::string printed;
    {
        CapturedErrors const errors(folder / "errors");
        on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<1>> toy(communicator, same_schedule<ZeroStage<1>>());
            try {
                CheckpointSaver saver(*toy.engine, folder / "all");
                saver.start({.name = "lost"});
                throw std::runtime_error("of the caller");
            } catch (std::runtime_error const&) {
                return 0;
            }
        });
        printed = errors.text();
    }
    CHECK(printed
          == "zero: the checkpoint 'lost' was given up: an exception ended the training before "
             "wait()\n");
    CHECK(CheckpointDirectory(folder / "all").complete().empty());
    CheckpointDirectory(folder / "all").begin("next"); // removes its files
    CHECK(std::filesystem::is_empty(folder / "all/.incomplete-next"));
    CHECK_FALSE(std::filesystem::exists(folder / "all/.incomplete-lost"));
}

TEST_CASE("A saver that is destroyed without wait says on every rank why nothing was published") {
    TemporaryFolder const folder;
    std::string printed;
    {
        CapturedErrors const errors(folder / "errors");
        on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<1>> toy(communicator, same_schedule<ZeroStage<1>>());
            CheckpointSaver saver(*toy.engine, folder / "all");
            saver.start({.name = "lost"});
            if (communicator.rank() == 0) { // of both: start() is collective
                std::filesystem::remove_all(folder / "all");
            }
            return 0;
        });
        printed = errors.text();
    }
    INFO(printed);
    CHECK(printed.find("zero: the checkpoint 'lost' was given up: zero: ") != std::string::npos);
    CHECK(printed.find("rank 0 could not publish the checkpoint") != std::string::npos);
}

TEST_CASE("A save that cannot be started on one rank is no save on any, and the next one works") {
    TemporaryFolder const folder;
    std::filesystem::create_directory(folder / "all");
    struct Seen {
        Outcome refused;
        std::optional<std::string> nothing;
        std::optional<std::string> next;
        Bits state;
    };
    auto const seen = on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator, same_schedule<ZeroStage<2>>());
        train(*toy.engine, communicator, 0, 2);
        // Rank 1 uses another name for the folder. That name does not exist yet.
        auto const own = folder / (communicator.rank() == 0 ? "all" : "late");
        CheckpointSaver saver(*toy.engine, own);
        Seen result;
        result.refused = outcome_of([&] { saver.start(); });
        result.nothing = saver.wait();
        if (communicator.rank() == 1) {
            std::filesystem::create_directory_symlink("all", own);
        }
        train(*toy.engine, communicator, 2, 3); // both ranks meet after the link was made
        result.state = state_of(*toy.engine);
        saver.start({.name = "next"});
        result.next = saver.wait();
        return result;
    });
    CHECK(seen[0].refused.message.find("rank 1 could not copy its state") != std::string::npos);
    CHECK(seen[0].refused.message.find("late") != std::string::npos); // the cause
    CHECK(seen[1].refused.message.find("late") != std::string::npos);
    for (Seen const& own : seen) {
        CHECK_FALSE(own.nothing.has_value());
        CHECK(own.next == "next");
    }
    CHECK(CheckpointDirectory(folder / "all").complete() == std::vector<std::string>{"next"});
    CHECK(loaded_state(folder / "all", "next") == seen[0].state);
}

} // namespace zero::test::checkpoint_saver_test
