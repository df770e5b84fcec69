#include "engine_model.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/sgd.hpp>

#include <fstream>

// Checkpoints that move between engines of different world size, stage, partitioner or types, and
// damaged checkpoints.

namespace zero::test::reshard_test {

namespace {

using namespace engine_model;

/// Trains three steps on `world` ranks, saves, and returns the state.
template <class Stage>
Bits save_after_three_steps(int world, std::filesystem::path const& folder) {
    return on_ranks<Bits>(world, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator, same_schedule<Stage>());
        train(*toy.engine, communicator, 0, 3);
        save_checkpoint(*toy.engine, folder, {.extras = {{"text", "ü"}}});
        return state_of(*toy.engine);
    })[0];
}

struct Loaded {
    Bits state;
    Bits before;
    Outcome outcome;
    LoadReport report;
    std::size_t padding = 0;
};

/// Loads on `world` ranks. With an error the state stays `before`.
template <class Stage>
std::vector<Loaded> load(int world, std::filesystem::path const& folder,
                         LoadOptions const& options = {}) {
    return on_ranks<Loaded>(world, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator, same_schedule<Stage>());
        train(*toy.engine, communicator, 0, 1);
        Loaded own;
        own.before = state_of(*toy.engine);
        own.outcome =
            outcome_of([&] { own.report = load_checkpoint(*toy.engine, folder, options); });
        own.state = state_of(*toy.engine);
        train(*toy.engine, communicator, 3, 4); // the engine goes on
        std::size_t elements = 0;
        for (auto const& spec : toy.engine->layout().parameters()) {
            elements += spec.elements;
        }
        own.padding = toy.engine->layout().padded_elements() - elements;
        return own;
    });
}

} // namespace

TEST_CASE("Every number of ranks loads what every other has saved, to the bit") {
    for (int const from : {1, 2, 3, 4, 8}) {
        TemporaryFolder const folder;
        Bits const saved = save_after_three_steps<ZeroStage<2>>(from, folder.path());
        for (int const to : {1, 2, 3, 4, 8}) {
            for (Loaded const& own : load<ZeroStage<3, RoundRobinPartitioner>>(to, folder.path())) {
                INFO(from << " to " << to << ": " << own.outcome.message);
                CHECK(own.state == saved);
                CHECK(own.before != saved);
                CHECK(own.padding > 0);
                CHECK(own.report.extras.at("text") == "ü");
            }
        }
    }
}

TEST_CASE("Sixteen-bit parameters with masters move from stage 3 to the others") {
    using P = Parameters<bfloat16>;
    for (int const from : {2, 3}) {
        TemporaryFolder const folder;
        Bits const saved =
            save_after_three_steps<ZeroStage<3, P, RoundRobinPartitioner>>(from, folder.path());
        CHECK(load<ZeroStage<0, P>>(3, folder.path())[2].state == saved);
        CHECK(load<ZeroStage<1, P>>(4, folder.path())[3].state == saved);
        CHECK(load<ZeroStage<2, P>>(5, folder.path())[0].state == saved);
    }
}

TEST_CASE("Float and split master weights are loaded into one another exactly") {
    using P = Parameters<bfloat16>;
    TemporaryFolder const folder;
    Bits const floats = save_after_three_steps<ZeroStage<2, P>>(2, folder.path());
    CHECK(load<ZeroStage<3, P, SplitMasterWeights>>(3, folder.path())[0].state == floats);
    TemporaryFolder const other;
    Bits const split = save_after_three_steps<ZeroStage<2, P, SplitMasterWeights>>(3, other.path());
    CHECK(load<ZeroStage<1, P>>(2, other.path())[1].state == split);
}

TEST_CASE("Values that would be rounded are refused unless that is asked for") {
    using P = Parameters<bfloat16>;
    using Rounded = ZeroStage<2, P, NoMasterWeights>;
    TemporaryFolder const folder;
    Bits const saved = save_after_three_steps<ZeroStage<2, P>>(2, folder.path());
    for (Loaded const& own : load<Rounded>(2, folder.path())) {
        CHECK(own.outcome.type == "other");
        CHECK(own.outcome.message.find("which BF16 rounds") != std::string::npos);
        CHECK(own.outcome.message.find("may_round accepts") != std::string::npos);
        CHECK(own.outcome.message.find("may_differ") == std::string::npos);
        CHECK(own.state == own.before);
    }
    for (Loaded const& own : load<Rounded>(2, folder.path(), {.may_round = true})) {
        CHECK(own.outcome.type == "returned");
        CHECK(own.state != saved);
        CHECK(own.state != own.before);
    }
}

TEST_CASE("Another optimizer is refused, or loaded as far as its states have the same names") {
    TemporaryFolder const folder;
    Bits const saved = save_after_three_steps<ZeroStage<2>>(2, folder.path());
    CHECK(load<ZeroStage<2, Adam>>(2, folder.path())[0].outcome.message.find("optimizer AdamW")
          != std::string::npos);
    CHECK(load<ZeroStage<2, Adam>>(2, folder.path(), {.may_differ = true})[0].state == saved);
    auto const sgd = load<ZeroStage<2, Sgd>>(2, folder.path());
    CHECK(sgd[1].outcome.message.find("no state 'momentum_buffer'") != std::string::npos);
    CHECK(sgd[1].outcome.message.find("optimizer AdamW and not with Sgd")
          < sgd[1].outcome.message.find("no state"));
    CHECK(sgd[1].outcome.message.find("may_differ accepts") != std::string::npos);
    CHECK(sgd[1].outcome.message.find("may_round") == std::string::npos);
    CHECK(sgd[1].state == sgd[1].before);
    CHECK(load<ZeroStage<2, Sgd>>(2, folder.path(), {.scope = LoadScope::weights})[0].outcome.type
          == "returned");
}

TEST_CASE("A damaged file is an error on every rank, and no engine changes") {
    TemporaryFolder const folder;
    save_after_three_steps<ZeroStage<2>>(2, folder.path());
    auto const checkpoint = folder / "step-00000003";
    for (std::string const name : {"data-00001.safetensors", "manifest.json"}) {
        std::string const good = content_of(checkpoint / name);
        for (std::string const damage : {"bit", "cut", "missing"}) {
            std::string bad = good;
            bad[bad.size() * 3 / 4] = static_cast<char>(bad[bad.size() * 3 / 4] ^ 4);
            if (damage == "bit") {
                set_content(checkpoint / name, bad);
            } else if (damage == "cut") {
                set_content(checkpoint / name, good.substr(0, good.size() - 2));
            } else {
                std::filesystem::remove(checkpoint / name);
            }
            for (Loaded const& own :
                 load<ZeroStage<3>>(3, folder.path(), {.name = "step-00000003"})) {
                INFO(name << " " << damage);
                CHECK(own.outcome.type == "other");
                CHECK_FALSE(own.outcome.message.empty());
                CHECK(own.state == own.before);
            }
            set_content(checkpoint / name, good);
        }
    }
    CHECK(load<ZeroStage<3>>(3, folder.path())[0].outcome.type == "returned");
}

TEST_CASE("Read once, a checkpoint gives the same state, and damage breaks the engine") {
    TemporaryFolder const folder;
    Bits const saved = save_after_three_steps<ZeroStage<2>>(2, folder.path());
    auto const twice = load<ZeroStage<3>>(3, folder.path());
    auto const once = load<ZeroStage<3>>(3, folder.path(), {.verify_first = false});
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(once[rank].state == saved);
        CHECK(once[rank].report.bytes_needed == twice[rank].report.bytes_needed);
    }

    auto const file = folder / "step-00000003" / "data-00001.safetensors";
    std::string bad = content_of(file);
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 4);
    set_content(file, bad);
    for (bool const verify_first : {true, false}) {
        auto const next = on_ranks<Outcome>(3, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<3>> toy(communicator);
            (void)outcome_of([&] {
                load_checkpoint(*toy.engine, folder.path(), {.verify_first = verify_first});
            });
            return outcome_of([&] { toy.engine->begin_step(); });
        });
        for (Outcome const& own : next) {
            INFO(own.message);
            CHECK((own.type == "returned") == verify_first);
        }
    }
}

TEST_CASE("A rank that cannot write keeps every rank from publishing, and training goes on") {
    TemporaryFolder const folder;
    set_content(folder / "file", "no folder");
    auto const seen = on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator);
        Outcome const outcome = outcome_of([&] { save_checkpoint(*toy.engine, folder / "file"); });
        train(*toy.engine, communicator, 0, 1);
        return outcome;
    });
    CHECK(seen[0].message.find("file") != std::string::npos);
    CHECK(seen[1].message.find("rank 0 could not begin the checkpoint") != std::string::npos);
    CHECK(seen[1].message.find("Its error is: " + seen[0].message.substr(0, 100))
          != std::string::npos);
}

TEST_CASE("Parameters in one file are read into another layout, and while an engine is made") {
    using P = Parameters<bfloat16>;
    TemporaryFolder const folder;
    auto const file = folder / "model.safetensors";
    auto const saved = on_ranks<std::vector<Bits>>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2, P>> toy(communicator);
        train(*toy.engine, communicator, 0, 3);
        save_parameters(*toy.engine, file);
        TrainingState state(*toy.engine);
        return std::vector<Bits>{bits_of(state.full_fp32_parameter(0)),
                                 bits_of(state.full_fp32_parameter(1))};
    })[0];
    auto const link = folder / "snapshot.safetensors"; // as in the cache of Hugging Face
    std::filesystem::create_symlink(file.filename(), link);
    auto const loaded = on_ranks<std::vector<Bits>>(3, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<3, P>> toy(communicator);
        load_parameters(*toy.engine, link, {.may_round = true}); // the frozen ones
        TrainingState state(*toy.engine);
        auto const reader = std::make_shared<CheckpointReader>(CheckpointReader::of_file(link));
        std::vector<Parameter<float>> parameters{
            {.name = "other",
             .elements = toy_specs()[1].elements,
             .initialise = initialise_from<float>(reader, toy_specs()[1].name)}};
        ZeroStage<3> made(communicator, parameters);
        return std::vector<Bits>{bits_of(state.full_fp32_parameter(0)),
                                 bits_of(TrainingState(made).full_fp32_parameter(0))};
    })[2];
    CHECK(loaded == saved);
}

} // namespace zero::test::reshard_test
