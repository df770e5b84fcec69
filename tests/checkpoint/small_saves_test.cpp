// A checkpoint without frozen parameters is loaded over a base that has their values, in any stage
// and on any number of ranks, and training goes on with the bits of a run that did not stop.

#include "engine_model.hpp"
#include "stage/offload_model.hpp"
#include "support/catch.hpp"
#include "support/tiled_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/comm/groups.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/zero.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::small_saves_test {

namespace {

using namespace engine_model;

/// A random model, of which some parameters are frozen.
struct Model {
    std::vector<ParameterSpec> specs;
    std::vector<std::size_t> frozen; ///< with elements
    Storage storage = Storage::owned;

    explicit Model(std::mt19937_64& random, std::vector<std::size_t> const& sizes) {
        std::size_t const count = 2 + random() % 8;
        for (std::size_t index = 0; index < count; ++index) {
            bool const is_trainable = index == 0 || random() % 2 == 0;
            std::size_t const elements =
                index < 2 ? 200 + random() % 99 : sizes[random() % sizes.size()];
            specs.push_back({(is_trainable ? "adapter." : "block.") + std::to_string(index),
                             elements,
                             {index / 2},
                             index % 2,
                             is_trainable});
            if (!is_trainable && elements != 0) {
                frozen.push_back(index);
            }
        }
    }
};

/// A bit of a value that an engine has in another way than the base.
struct Change {
    std::size_t parameter = 0, element = 0;
    std::uint32_t bits = 0; ///< of a bfloat16, in a float
};

template <class Stage>
struct Made {
    using T = typename Stage::ParameterType;

    template <class Communicator>
    Made(Communicator& communicator, Model const& model, typename Stage::Options options = {},
         Change const& change = {}) {
        auto parameters = registration<T, typename Stage::GradientType>(model.specs);
        if (change.bits != 0) {
            auto const values = parameters[change.parameter].initialise;
            parameters[change.parameter].initialise = [=](std::size_t begin, std::span<T> into) {
                values(begin, into);
                if (begin <= change.element && change.element < begin + into.size()) {
                    T& value = into[change.element - begin];
                    value = from_float<T>(std::bit_cast<float>(
                        std::bit_cast<std::uint32_t>(to_float(value)) ^ change.bits));
                }
            };
        }
        options.storage = model.storage;
        memory = provide_memory(parameters, options);
        engine.emplace(communicator, parameters, options);
    }

    std::optional<CallerMemory<T, typename Stage::GradientType>> memory;
    std::optional<Stage> engine;
};

SaveOptions const& small() { // no constant: clang 14 fails to compile one
    static SaveOptions const options = [] {
        SaveOptions made;
        made.only.trainable = true;
        made.base = "base of the test";
        return made;
    }();
    return options;
}

template <class Stage>
void save(Stage& engine, std::filesystem::path const& folder, bool behind,
          SaveOptions const& options = small()) {
    if (behind) {
        CheckpointSaver saver(engine, folder);
        saver.start(options);
        (void)saver.wait();
    } else {
        save_checkpoint(engine, folder, options);
    }
}

template <class Stage, class Communicator>
void train(Stage& engine, Communicator const& communicator, std::uint64_t begin,
           std::uint64_t end) {
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    for (std::uint64_t step = begin; step < end; ++step) {
        (void)run_step(engine, rank, step).report();
    }
}

struct Seen {
    Bits saved, end; ///< states when it was saved, and two steps later
    Outcome outcome;
    LoadReport report;
    Bits before, after;
};

template <class Stage>
constexpr int number_of = 0;
template <int N, class... Policies>
constexpr int number_of<ZeroStage<N, Policies...>> = N;

/// Returns a storage that a stage accepts.
template <class Stage>
Storage random_storage(std::mt19937_64& random) {
    constexpr Storage all[]{Storage::owned, Storage::scattered, Storage::adopted};
    return all[number_of<Stage> == 3 ? 0 : random() % 3];
}

/// Saves with `Saves` on some ranks, and loads with `Loads` on others.
template <class Saves, class Loads>
void check(std::mt19937_64& random) {
    std::vector<std::size_t> const sizes{0, 1, 2, 63, 64, 65, 129, 500, 997};
    Model model(random, sizes);
    model.storage = random_storage<Saves>(random);
    int const from = 1 + static_cast<int>(random() % 5), to = 1 + static_cast<int>(random() % 5);
    bool const behind = random() % 2 == 0;
    INFO(from << " to " << to << " ranks, " << model.specs.size() << " parameters");
    TemporaryFolder const folder;
    auto const options = same_schedule<Saves>();
    auto const ran = on_ranks<Seen>(from, [&](LoopbackCommunicator& communicator) {
        Made<Saves> made(communicator, model, options);
        Seen own;
        train(*made.engine, communicator, 0, 2);
        save(*made.engine, folder.path(), behind);
        own.saved = state_of(*made.engine);
        train(*made.engine, communicator, 2, 4);
        own.end = state_of(*made.engine);
        return own;
    });

    auto const manifest = Manifest::read(folder / "step-00000002");
    std::size_t trainable = 0;
    for (auto const& parameter : manifest.parameters) {
        trainable += parameter.trainable ? 1 : 0;
    }
    CHECK(manifest.parameters.size() == trainable);
    CHECK(manifest.base.size() == model.specs.size() - trainable);

    Storage const other_storage = random_storage<Loads>(random);
    auto const load = [&](Change const& change, LoadOptions const& load_options) {
        Model as = model;
        as.storage = other_storage;
        return on_ranks<Seen>(to, [&](LoopbackCommunicator& communicator) {
            Made<Loads> made(communicator, as, same_schedule<Loads>(), change);
            train(*made.engine, communicator, 7, 8);
            Seen own;
            own.before = state_of(*made.engine);
            own.outcome = outcome_of(
                [&] { own.report = load_checkpoint(*made.engine, folder.path(), load_options); });
            own.after = state_of(*made.engine);
            train(*made.engine, communicator, 2, 4);
            own.end = state_of(*made.engine);
            return own;
        });
    };
    for (Seen const& own : load({}, {})) {
        INFO(own.outcome.message);
        CHECK(own.outcome.type == "returned");
        CHECK(own.after == ran[0].saved);
        CHECK(own.before != ran[0].saved);
        CHECK(own.report.base == (manifest.base.empty() ? "" : "base of the test"));
        CHECK(own.report.differences.empty());
        if (from == to) {
            CHECK(own.end == ran[0].end);
        }
    }
    if (model.frozen.empty()) {
        return;
    }
    std::size_t const parameter = model.frozen[random() % model.frozen.size()];
    std::string const name = model.specs[parameter].name;
    std::uint32_t const bit = std::uint32_t{1} << (16 + random() % 7);
    Change const change{parameter, random() % model.specs[parameter].elements,
                        random() % 2 == 0 ? bit : 0x80000000U};
    for (Seen const& own : load(change, {})) {
        INFO(own.outcome.message);
        CHECK(own.outcome.type == "other");
        CHECK(own.outcome.message.find("another base than 'base of the test'")
              != std::string::npos);
        CHECK(own.outcome.message.find("parameter '" + name + "' has other values")
              != std::string::npos);
        CHECK(own.after == own.before);
    }
    for (Seen const& own : load(change, {.may_differ = true})) {
        CHECK(own.outcome.type == "returned");
        REQUIRE(own.report.differences.size() == 1);
        CHECK(own.report.differences[0].find(name) != std::string::npos);
    }
}

using Half = Parameters<bfloat16>;

} // namespace

TEST_CASE("Random models are saved without what is frozen, and load over their base") {
    std::mt19937_64 random(38);
    for (int round = 0; round < 6; ++round) {
        check<ZeroStage<0>, ZeroStage<3>>(random);
        check<ZeroStage<3>, ZeroStage<1>>(random);
        check<ZeroStage<1>, ZeroStage<2>>(random);
        check<ZeroStage<2>, ZeroStage<0>>(random);
        check<ZeroStage<2, Half>, ZeroStage<3, Half>>(random);
        check<ZeroStage<3, Half, SplitMasterWeights>, ZeroStage<2, Half, SplitMasterWeights>>(
            random);
    }
}

namespace {

/// Returns two blocks with an adapter each, of which one is frozen as well, and a head.
Model fixed() {
    std::mt19937_64 random(1);
    Model model(random, {1});
    model.specs = {{"0.block", 300, {0}, 1, false},    {"0.adapter.a", 70, {0}, 0, true},
                   {"0.adapter.b", 65, {0}, 0, true},  {"1.block", 129, {1}, 1, false},
                   {"1.adapter.a", 64, {1}, 0, false}, {"head", 9, {1}, 0, true}};
    return model;
}

std::vector<std::string> names_of(std::vector<ManifestParameter> const& parameters) {
    std::vector<std::string> names;
    for (auto const& parameter : parameters) {
        names.push_back(parameter.name);
    }
    return names;
}

/// Saves on two ranks, of which rank 1 may have other options. @return what each rank saw
std::vector<Outcome> save_fixed(std::filesystem::path const& folder, SaveOptions const& options,
                                SaveOptions const& of_rank_1) {
    return on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
        Made<ZeroStage<2>> made(communicator, fixed());
        train(*made.engine, communicator, 0, 1);
        auto const own = outcome_of([&] {
            save(*made.engine, folder, false, communicator.rank() == 0 ? options : of_rank_1);
        });
        train(*made.engine, communicator, 1, 2); // it goes on
        return own;
    });
}

Outcome load_fixed(std::filesystem::path const& folder, Model const& model,
                   LoadOptions const& options = {}, LoadReport* report = nullptr) {
    return on_ranks<Outcome>(3, [&](LoopbackCommunicator& communicator) {
        Made<ZeroStage<3>> made(communicator, model);
        return outcome_of([&] {
            auto const own = load_checkpoint(*made.engine, folder, options);
            if (report != nullptr && communicator.rank() == 2) {
                *report = own;
            }
        });
    })[2];
}

} // namespace

TEST_CASE("Names select parameters, and a checkpoint lists what it leaves out") {
    TemporaryFolder const folder;
    SaveOptions const options{.only = {.names = {"*.adapter.*", "head"}}, .base = "b"};
    CHECK(save_fixed(folder.path(), options, options)[1].type == "returned");
    auto const manifest = Manifest::read(folder / "step-00000001");
    CHECK(names_of(manifest.parameters)
          == Names{"0.adapter.a", "0.adapter.b", "1.adapter.a", "head"});
    CHECK(names_of(manifest.base) == Names{"0.block", "1.block"});
    CHECK(manifest.base_name == "b");
    CHECK(manifest.base[0].hash != manifest.base[1].hash);
    CHECK(manifest.base[0].intervals.empty());
    CHECK(Manifest::from_json(manifest.to_json(), "text").base[1].hash == manifest.base[1].hash);
    CHECK(load_fixed(folder.path(), fixed()).message.empty());

    // Files of weights have what the checkpoint has.
    CheckpointReader reader(folder / "step-00000001");
    consolidate(reader, folder / "adapters.safetensors");
    CHECK(CheckpointReader::of_file(folder / "adapters.safetensors").manifest().parameters.size()
          == 4);
    CHECK(reader.find_base("1.block") == &reader.manifest().base[1]);
    CHECK(reader.find_base("head") == nullptr);

    // Control: without the option nothing is left out, and the text has no member more.
    TemporaryFolder const other;
    (void)save_fixed(other.path(), {}, {});
    auto const all = Manifest::read(other / "step-00000001");
    CHECK(all.parameters.size() == 6);
    CHECK(content_of(other / "step-00000001" / "manifest.json").find("base") == std::string::npos);
}

TEST_CASE("Parameters that are saved and fit no checkpoint are refused on every rank") {
    TemporaryFolder const folder;
    SaveOptions const unknown{.only = {.names = {"head", "*.lora"}}};
    SaveOptions const useless{.base = "b"};
    SaveOptions const some{.only = {.names = {"head"}}};
    for (Outcome const& own : save_fixed(folder.path(), unknown, unknown)) {
        CHECK(own.type == "InvalidArgument");
        CHECK(own.message.find("names '*.lora', which is no parameter") != std::string::npos);
    }
    for (Outcome const& own : save_fixed(folder.path(), useless, useless)) {
        CHECK(own.type == "InvalidArgument");
        CHECK(own.message.find("set SaveOptions::only") != std::string::npos);
    }
    for (SaveOptions const& of_rank_1 : {small(), SaveOptions{}}) {
        for (Outcome const& own : save_fixed(folder.path(), some, of_rank_1)) {
            CHECK(own.type == "InvalidArgument");
            CHECK(own.message.find("ranks 0 and 1 have different options: 'only, or names, types "
                                   "and sizes of rows of arrays'")
                  != std::string::npos);
        }
    }
    CHECK(CheckpointDirectory(folder.path()).complete().empty());
    CHECK(save_fixed(folder.path(), {.only = {.trainable = true}, .base = "\xff"}, small())[0]
              .message.find("SaveOptions::base is not text in UTF-8")
          != std::string::npos);
    CHECK(save_fixed(folder.path(), some, some)[0].type == "returned");
}

TEST_CASE("Parameters that neither a small checkpoint nor its base has are refused by name") {
    TemporaryFolder const folder;
    SaveOptions const options{.only = {.names = {"0.*", "1.block"}}, .base = "b"};
    (void)save_fixed(folder.path(), options, options);
    std::string const missing = load_fixed(folder.path(), fixed()).message;
    INFO(missing);
    CHECK(missing.find("the checkpoint has no parameter 'head', shape [9]") != std::string::npos);
    CHECK(missing.find("1.adapter.a") == std::string::npos); // frozen: of the base
    LoadReport report;
    CHECK(load_fixed(folder.path(), fixed(), {.may_differ = true}, &report).message.empty());
    CHECK(report.without_states == Names{"head"});

    (void)save_fixed(folder.path(), small(), small());
    Model lacks = fixed();
    lacks.specs.erase(lacks.specs.begin() + 3);
    CHECK(load_fixed(folder.path(), lacks)
              .message.find("the model has no parameter '1.block' of the base, shape [129]")
          != std::string::npos);
    Model larger = fixed();
    larger.specs[0].elements = 301;
    CHECK(load_fixed(folder.path(), larger).message.find("parameter '0.block' has 301 elements")
          != std::string::npos);
    Model renamed = fixed();
    renamed.specs[0].name = "0.black";
    std::string const other = load_fixed(folder.path(), renamed).message;
    CHECK(other.find("no parameter '0.black'") != std::string::npos);
    CHECK(other.find("no parameter '0.block' of the base") != std::string::npos);
}

TEST_CASE("A parameter of the base that is trainable now needs an option, and begins anew") {
    TemporaryFolder const folder;
    (void)save_fixed(folder.path(), small(), small());
    Model thawed = fixed();
    thawed.specs[4].trainable = true;
    CHECK(load_fixed(folder.path(), thawed).message.find("'1.adapter.a' is trainable and was")
          != std::string::npos);
    LoadReport report;
    CHECK(load_fixed(folder.path(), thawed, {.may_thaw = true}, &report).message.empty());
    CHECK(report.without_states == Names{"1.adapter.a"});
    CHECK(report.differences.size() == 1);
    // Weights alone need no states; the base is compared all the same.
    CHECK(load_fixed(folder.path(), thawed, {.scope = LoadScope::weights}).message.empty());
    thawed.specs[3].name = "1.block.renamed";
    CHECK_FALSE(load_fixed(folder.path(), thawed, {.scope = LoadScope::weights}).message.empty());

    // An adapter that is frozen now loads, and its states are dropped.
    Model frozen = fixed();
    frozen.specs[1].trainable = false;
    CHECK(load_fixed(folder.path(), frozen, {}, &report).message.empty());
    CHECK(report.differences.size() == 1);
}

TEST_CASE("The hash of a base does not depend on the type that holds its values") {
    TemporaryFolder const folder;
    std::vector<std::vector<std::uint64_t>> hashes;
    auto const hashes_of = [&]<class Stage>(int world) {
        (void)on_ranks<int>(world, [&](LoopbackCommunicator& communicator) {
            Model model = fixed();
            auto parameters = registration<typename Stage::ParameterType>(model.specs);
            for (auto& parameter : parameters) {
                parameter.initialise = [](std::size_t begin, auto values) {
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        values[i] = from_float<typename Stage::ParameterType>(
                            static_cast<float>((begin + i) % 13) - 6.0F);
                    }
                };
            }
            Stage engine(communicator, parameters);
            save_checkpoint(engine, folder.path(), small());
            return 0;
        });
        hashes.emplace_back();
        for (auto const& parameter : Manifest::read(folder / "step-00000000").base) {
            hashes.back().push_back(parameter.hash);
        }
    };
    hashes_of.operator()<ZeroStage<3>>(3);
    hashes_of.operator()<ZeroStage<1, Half>>(2);
    hashes_of.operator()<ZeroStage<0, Parameters<float16>>>(1);
    CHECK(hashes[0].size() == 3);
    CHECK(hashes[1] == hashes[0]);
    CHECK(hashes[2] == hashes[0]);
}

TEST_CASE("Replicas, states in files and tiles have small checkpoints") {
    TemporaryFolder const folder;
    std::mt19937_64 random(5);
    for (std::size_t const shard : {1U, 2U, 4U}) { // of 4 ranks
        using Hosts = Groups<LoopbackCommunicator, Hybrid>;
        using Stage = ZeroStage<3, Half, Hosts>;
        std::vector<Seen> seen(4);
        run_ranks(4, test_time_out, [&](LoopbackCommunicator& everyone) {
            auto const rank = static_cast<std::size_t>(everyone.rank());
            Hosts hosts(everyone, {.shard = shard});
            run_rank(hosts, [&](Hosts& groups) {
                Made<Stage> made(groups, fixed());
                train(*made.engine, groups, 0, 2);
                save(*made.engine, folder.path(), shard == 2);
                seen[rank].saved = state_of(*made.engine);
                Made<Stage> other(groups, fixed());
                load_checkpoint(*other.engine, folder.path());
                seen[rank].after = state_of(*other.engine);
                Made<Stage> changed(groups, fixed(), {}, {3, 128, 0x10000U});
                seen[rank].outcome =
                    outcome_of([&] { load_checkpoint(*changed.engine, folder.path()); });
            });
        });
        for (Seen const& own : seen) {
            CHECK(own.after == own.saved);
            CHECK(own.outcome.message.find("parameter '1.block' has") != std::string::npos);
        }
    }
    // In stage 3 the parameters lie in files as well.
    using Filed = ZeroStage<3, Half, OffloadAll<3>>;
    DelayedFiles files(7);
    Filed::Options options = same_schedule<Filed>();
    options.offload = {.path = folder.path(), .chunk_bytes = 4096, .calls = &files};
    for (bool const behind : {false, true}) {
        Bits const saved = on_ranks<Bits>(3, [&](LoopbackCommunicator& communicator) {
            Made<Filed> made(communicator, fixed(), options);
            train(*made.engine, communicator, 0, 2);
            save(*made.engine, folder.path(), behind);
            return state_of(*made.engine);
        })[2];
        Bits const loaded = on_ranks<Bits>(2, [&](LoopbackCommunicator& communicator) {
            Made<Filed> made(communicator, fixed(), options);
            load_checkpoint(*made.engine, folder.path());
            return state_of(*made.engine);
        })[1];
        CHECK(loaded == saved);
    }
    // A base in tiles has one hash, whatever the tiles are.
    auto const tiled = [](std::size_t count) {
        auto parameters = tiled_model<bfloat16>(count);
        for (std::size_t index = 1; index + 1 < parameters.size(); ++index) {
            parameters[index].trainable = false;
        }
        return parameters;
    };
    (void)on_ranks<int>(3, [&](LoopbackCommunicator& communicator) {
        ZeroStage<3, Half> engine(communicator, tiled(4));
        save_checkpoint(engine, folder.path(), {.name = "tiles", .only = {.trainable = true}});
        return 0;
    });
    CHECK(names_of(Manifest::read(folder / "tiles").base) == Names{"weight"});
    for (std::size_t const count : {no_tiles, std::size_t{1}, std::size_t{7}}) {
        CHECK(on_ranks<Outcome>(2,
                                [&](LoopbackCommunicator& communicator) {
                                    ZeroStage<2, Half> engine(communicator, tiled(count));
                                    return outcome_of([&] {
                                        load_checkpoint(engine, folder.path(), {.name = "tiles"});
                                    });
                                })[1]
                  .message.empty());
    }
}

} // namespace zero::test::small_saves_test
