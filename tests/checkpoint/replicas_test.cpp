#include "engine_model.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

// One replica of a hybrid run writes a checkpoint, and every rank reads it. Each part of a model
// that is cut over ranks has checkpoints of its own.

namespace zero::test::replicas_test {

namespace {

using namespace engine_model;
using Hosts = Groups<LoopbackCommunicator, Hybrid>;

constexpr std::size_t world = 6;

template <class Stage>
Bits trained(Hosts& hosts, std::uint64_t begin, std::uint64_t end,
             std::filesystem::path const& load, std::filesystem::path const& save,
             bool in_background = false) {
    Toy<Stage> toy(hosts, same_schedule<Stage>());
    auto& engine = *toy.engine;
    if (!load.empty()) {
        load_checkpoint(engine, load);
    }
    train(engine, hosts, begin, end);
    if (in_background) {
        CheckpointSaver saver(engine, save);
        saver.start();
        (void)saver.wait();
    } else if (!save.empty()) {
        save_checkpoint(engine, save);
    }
    return state_of(engine);
}

/// The result of every rank on 6 ranks in groups of `shard`.
template <class Stage>
std::vector<Bits> run(std::size_t shard, std::uint64_t begin, std::uint64_t end,
                      std::filesystem::path const& load = {},
                      std::filesystem::path const& save = {}, bool in_background = false,
                      bool is_interleaved = false) {
    std::vector<Bits> states(world);
    run_ranks(static_cast<int>(world), test_time_out, [&](LoopbackCommunicator& everyone) {
        auto const rank = static_cast<std::size_t>(everyone.rank());
        Hosts hosts(everyone, {.shard = shard,
                               .group = is_interleaved ? std::optional(rank % (world / shard))
                                                       : std::nullopt});
        run_rank(hosts, [&](Hosts& groups) {
            states[rank] = trained<Stage>(groups, begin, end, load, save, in_background);
        });
    });
    return states;
}

std::size_t files_in(std::filesystem::path const& directory) {
    std::size_t files = 0;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(directory)) {
        files += entry.path().filename().string().rfind("data-", 0) == 0 ? 1 : 0;
    }
    return files;
}

} // namespace

TEST_CASE("A hybrid run that is saved and loaded continues with the bits of one that never "
          "stopped, and one replica writes") {
    auto const straight = run<ZeroStage<3, Hosts>>(2, 0, 6);
    for (bool const in_background : {false, true}) {
        for (bool const is_interleaved : {false, true}) {
            CAPTURE(in_background, is_interleaved);
            auto const expected =
                is_interleaved ? run<ZeroStage<3, Hosts>>(2, 0, 6, {}, {}, false, true) : straight;
            TemporaryFolder const folder;
            (void)run<ZeroStage<3, Hosts>>(2, 0, 3, {}, folder.path(), in_background,
                                           is_interleaved);
            CHECK(files_in(folder.path()) == 2);
            CHECK(run<ZeroStage<3, Hosts>>(2, 3, 6, folder.path(), {}, false, is_interleaved)
                  == expected);
            CHECK(run<ZeroStage<2, RoundRobinPartitioner, Hosts>>(2, 3, 6, folder.path(), {}, false,
                                                                  is_interleaved)
                  == expected);
            CHECK(run<ZeroStage<1, Hosts>>(2, 4, 6, folder.path(), {}, false, is_interleaved)
                  != expected); // a step fewer
        }
    }
}

TEST_CASE("Each rank of a hybrid run goes on with its own errors of encoded gradients") {
    auto const check = [&]<class Saves, class Loads>(std::type_identity<Saves>,
                                                     std::type_identity<Loads>) {
        TemporaryFolder const folder;
        (void)run<Saves>(2, 0, 3, {}, folder.path());
        CHECK(run<Loads>(2, 3, 6, folder.path()) == run<Saves>(2, 0, 6));
    };
    using Codes = Wire<Plain, Level<Int4Blocks, Int8Blocks>, ErrorFeedback<float>>;
    check(std::type_identity<ZeroStage<2, Hosts, Codes>>(),
          std::type_identity<ZeroStage<3, Hosts, Codes>>());
    using Coded = Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>;
    check(std::type_identity<ZeroStage<3, Hosts, Coded>>(),
          std::type_identity<ZeroStage<1, RoundRobinPartitioner, Hosts, Coded>>());
}

TEST_CASE("Flat and hybrid runs load the checkpoints of each other, with groups of any size") {
    TemporaryFolder const folder;
    auto const saved = run<ZeroStage<2, Hosts>>(3, 0, 3, {}, folder.path());
    for (Bits const& state : saved) {
        CHECK(state == saved[0]); // gathered: equal on all replicas
    }
    CHECK(files_in(folder.path()) == 3);
    CHECK(run<ZeroStage<3, Hosts>>(2, 3, 3, folder.path()) == saved);
    CHECK(run<ZeroStage<1, Hosts>>(6, 3, 3, folder.path()) == saved);
    CHECK(run<ZeroStage<2, Hosts>>(1, 3, 3, folder.path()) == saved);
    for (int const ranks : {1, 4}) {
        TemporaryFolder const again;
        auto const flat = on_ranks<Bits>(ranks, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<3>> toy(communicator, same_schedule<ZeroStage<3>>());
            load_checkpoint(*toy.engine, folder.path());
            save_checkpoint(*toy.engine, again.path());
            return state_of(*toy.engine);
        });
        CHECK(flat[0] == saved[0]);
        CHECK(files_in(again.path()) == static_cast<std::size_t>(ranks));
        CHECK(run<ZeroStage<3, Hosts>>(2, 3, 3, again.path()) == saved);
    }
}

TEST_CASE("A rank of the replica that does not write fails with the others if a file cannot be "
          "written") {
    TemporaryFolder const folder;
    std::ofstream(folder / "file") << "no directory";
    std::vector<std::string> failures(world);
    run_ranks<Hosts>(static_cast<int>(world), test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        Toy<ZeroStage<2, Hosts>> toy(hosts, same_schedule<ZeroStage<2, Hosts>>());
        try {
            save_checkpoint(*toy.engine, folder / "file");
        } catch (CheckpointError const& error) {
            failures[static_cast<std::size_t>(hosts.rank())] = error.what();
        }
        save_checkpoint(*toy.engine, folder.path()); // the engine continues
    });
    for (std::string const& failure : failures) {
        CHECK_THAT(failure, contains_text("begin the checkpoint") || contains_text("file"));
    }
    CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("Each part of a model is saved in a folder of its own, and one folder for several parts "
          "is refused before anything is written") {
    using Ranks = Groups<LoopbackCommunicator, ModelParallel>;
    using Stage = ZeroStage<2, Ranks>;
    TemporaryFolder const folder;
    std::vector<std::string> refused(4);
    std::vector<std::string> exported(4);
    std::vector<Bits> straight(4);
    std::vector<Bits> resumed(4);
    run_ranks<Ranks>(4, test_time_out, {.model = 2}, [&](Ranks& ranks) {
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        std::size_t const rank = static_cast<std::size_t>(ranks.rank()) * 2 + part;
        auto const own = folder / ("part-" + std::to_string(part));
        Toy<Stage> toy(ranks, same_schedule<Stage>());
        train(*toy.engine, ranks, 0, 2);
        refused[rank] = outcome_of([&] {
                            save_checkpoint(*toy.engine, folder / (part == 0 ? "all" : "./all"),
                                            {.name = "part-" + std::to_string(part)});
                        }).message;
        exported[rank] =
            outcome_of([&] { save_parameters(*toy.engine, folder / "all.safetensors"); }).message;
        save_checkpoint(*toy.engine, own);
        train(*toy.engine, ranks, 2, 4);
        straight[rank] = state_of(*toy.engine);
        Toy<Stage> other(ranks, same_schedule<Stage>());
        load_checkpoint(*other.engine, own);
        train(*other.engine, ranks, 2, 4);
        resumed[rank] = state_of(*other.engine);
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
        CHECK_THAT(refused[rank], contains_text("model ranks 0 and 1 would write to one place"));
        CHECK_THAT(exported[rank], contains_text("all.safetensors"));
        CHECK(resumed[rank] == straight[rank]);
    }
    CHECK(!std::filesystem::exists(folder / "all"));
    CHECK(!std::filesystem::exists(folder / "all.safetensors"));
    CHECK(files_in(folder.path()) == 4);
}

TEST_CASE("A load drops secondary copies: an engine that read its parameters before reads what was "
          "loaded, and continues with the bits of the flat run") {
    using Shared = Groups<LoopbackCommunicator, Secondary>;
    TemporaryFolder const folder;
    auto const expected = on_ranks<Bits>(4, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<3>> toy(communicator, same_schedule<ZeroStage<3>>());
        train(*toy.engine, communicator, 0, 2);
        save_checkpoint(*toy.engine, folder / "checkpoint");
        save_parameters(*toy.engine, folder / "all.safetensors");
        train(*toy.engine, communicator, 2, 4);
        return state_of(*toy.engine);
    });
    struct Seen {
        std::vector<std::vector<float>> saved, before, loaded, parameters;
        Bits state;
    };
    std::vector<Seen> seen(4);
    run_ranks<Shared>(4, test_time_out, {.secondary = 2}, [&](Shared& shared) {
        using Stage = ZeroStage<3, Shared>;
        Toy<Stage> first(shared, same_schedule<Stage>());
        Toy<Stage> toy(shared, same_schedule<Stage>());
        Toy<Stage> other(shared, same_schedule<Stage>());
        Seen& own = seen[static_cast<std::size_t>(shared.rank())];
        train(*first.engine, shared, 0, 2);
        own.saved = full_parameters(*first.engine);
        own.before = full_parameters(*toy.engine); // leaves copies
        (void)full_parameters(*other.engine);
        load_checkpoint(*toy.engine, folder / "checkpoint");
        own.loaded = full_parameters(*toy.engine);
        load_parameters(*other.engine, folder / "all.safetensors");
        own.parameters = full_parameters(*other.engine);
        train(*toy.engine, shared, 2, 4);
        own.state = state_of(*toy.engine);
    });
    for (Seen const& own : seen) {
        CHECK(own.before != own.saved); // so that stale copies would be noticed
        CHECK(own.loaded == own.saved);
        CHECK(own.parameters == own.saved);
        CHECK(own.state == expected[0]);
    }
}

} // namespace zero::test::replicas_test
