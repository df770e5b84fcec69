#include "engine_model.hpp"
#include "support/catch.hpp"
#include "support/safetensors.hpp"

#include <zero/checkpoint/checkpoint_reader.hpp>
#include <zero/checkpoint/consolidate.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/stage/averaged_weights.hpp>
#include <zero/stage/training_state.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

// Files for other programs. tests/torch opens them with those.

namespace zero::test::exports_test {

namespace {

using namespace engine_model;

/// Writes the weights of an engine with `save_parameters` and with `consolidate`.
template <class Stage = ZeroStage<3>>
void write_exports(std::filesystem::path const& folder) {
    on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        train(*toy.engine, communicator, 0, 2);
        save_parameters(*toy.engine, folder / "saved.safetensors");
        save_checkpoint(*toy.engine, folder / "all", {.name = "one"});
        return 0;
    });
    CheckpointReader checkpoint(folder / "all/one");
    consolidate(checkpoint, folder / "consolidated.safetensors");
}

Names names_of(SafetensorsReader const& file) {
    Names names;
    for (TensorEntry const& tensor : file.tensors()) {
        names.push_back(tensor.name);
    }
    return names;
}

void flip(std::filesystem::path const& file, std::size_t byte) {
    std::string content = content_of(file);
    content.at(byte) = static_cast<char>(content[byte] ^ 1);
    set_content(file, content);
}

} // namespace

TEST_CASE("An exported file holds the parameters alone, and its format is pt") {
    TemporaryFolder const folder;
    write_exports(folder.path());
    Names expected;
    for (auto const& spec : toy_specs()) {
        expected.push_back(spec.name);
    }
    for (std::string const& name : {std::string("saved"), std::string("consolidated")}) {
        INFO(name);
        auto const file = folder / (name + ".safetensors");
        SafetensorsReader reader(file);
        CHECK(names_of(reader) == expected);
        CHECK(reader.metadata().at("format") == "pt");
        // All bytes after the header are data of the model.
        CHECK(content_of(file).size() % 64 == reader.tensors().back().end % 64);
    }
    CHECK(content_of(folder / "saved.safetensors")
          == content_of(folder / "consolidated.safetensors"));
    CHECK(entries(folder.path())
          == Names{"all", "consolidated.safetensors", "consolidated.safetensors.checksums",
                   "saved.safetensors", "saved.safetensors.checksums"});

    // Both write the master weights, not the parameters of 16 bits.
    TemporaryFolder const halves;
    write_exports<ZeroStage<3, Parameters<bfloat16>>>(halves.path());
    CHECK(content_of(halves / "saved.safetensors")
          == content_of(halves / "consolidated.safetensors"));
}

TEST_CASE("A parameter larger than what an export reads at once is exported whole") {
    TemporaryFolder const folder;
    on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator,
                            {{.name = "w",
                              .elements = 65539,
                              .initialise = [](std::size_t begin, std::span<float> values) {
                                  for (float& value : values) {
                                      value = static_cast<float>(begin++);
                                  }
                              }}});
        save_checkpoint(engine, folder / "all", {.name = "one"});
        return 0;
    });
    CheckpointReader checkpoint(folder / "all/one");
    consolidate(checkpoint, folder / "whole");
    SafetensorsReader reader(folder / "whole");
    std::vector<float> values(65539);
    reader.read(*reader.find("w"), 0, std::as_writable_bytes(std::span(values)));
    CHECK(values[65535] == 65535.0F);
    CHECK(values[65538] == 65538.0F);
}

TEST_CASE("A frozen parameter of 16 bits is exported in its type, aligned, and loads unrounded") {
    TemporaryFolder const folder;
    using Stage = ZeroStage<3, Parameters<bfloat16>>;
    auto const parameters = [] {
        std::vector<Parameter<bfloat16>> list;
        for (bool const is_trainable : {false, true, false, true}) { // an odd number of elements
            list.push_back({.name = std::to_string(list.size()),
                            .elements = 33,
                            .trainable = is_trainable,
                            .initialise = [](std::size_t begin, std::span<bfloat16> values) {
                                for (bfloat16& value : values) {
                                    value =
                                        from_float<bfloat16>(0.1F * static_cast<float>(begin++));
                                }
                            }});
        }
        return list;
    };
    auto const equal = on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, parameters());
        save_parameters(engine, folder / "saved");
        save_parameters(engine, folder / "halves", DType::float16);
        save_checkpoint(engine, folder / "all", {.name = "one"});
        auto const zeros = [&] {
            auto list = parameters();
            for (auto& parameter : list) {
                parameter.initialise = {};
            }
            return list;
        };
        Stage loaded(communicator, zeros());
        load_parameters(loaded, folder / "saved");
        return state_of(loaded) == state_of(engine) ? 1 : 0;
    });
    CHECK(equal == std::vector<int>{1, 1});
    SafetensorsReader saved(folder / "saved");
    CHECK(names_of(saved) == Names{"1", "3", "0", "2"});
    for (TensorEntry const& tensor : saved.tensors()) {
        CHECK(tensor.dtype == (tensor.begin < 264 ? "F32" : "BF16"));
    }
    SafetensorsReader const halves(folder / "halves");
    for (TensorEntry const& tensor : halves.tensors()) {
        CHECK(tensor.dtype == "F16");
    }
    CheckpointReader checkpoint(folder / "all/one");
    consolidate(checkpoint, folder / "consolidated");
    CHECK(content_of(folder / "consolidated") == content_of(folder / "saved"));
}

TEST_CASE("The checksums beside an exported file find damage, and are not needed") {
    TemporaryFolder const folder;
    write_exports(folder.path());
    auto const file = folder / "saved.safetensors";
    auto const beside = folder / "saved.safetensors.checksums";
    std::string const good = content_of(file);
    std::filesystem::path loaded = file;
    auto const refusal = [&] {
        return on_ranks<Outcome>(2,
                                 [&](LoopbackCommunicator& communicator) {
                                     Toy<ZeroStage<2>> toy(communicator);
                                     return outcome_of(
                                         [&] { load_parameters(*toy.engine, loaded); });
                                 })[0]
            .message;
    };
    CHECK(refusal().empty());
    flip(file, good.size() - 1);
    CHECK(refusal().find("is damaged: the checksum of the 2 KiB") != std::string::npos);
    CHECK(refusal().find("LoadOptions") == std::string::npos);
    {
        // Through a symbolic link they are found next to its target.
        std::filesystem::create_directory(folder / "links");
        auto const link = folder / "links/model.safetensors";
        std::filesystem::create_symlink("../saved.safetensors", link);
        loaded = link;
        CHECK(refusal().find("is damaged: the checksum of the 2 KiB") != std::string::npos);
        loaded = file;
        std::filesystem::remove_all(folder / "links");
    }
    set_content(file, good);
    flip(file, good.find("F32")); // in the header
    CHECK_FALSE(refusal().empty());
    set_content(file, good);
    flip(file, good.find("xxh3_index") + 13);
    CHECK(refusal().find("Remove the former") != std::string::npos);
    set_content(file, good);
    for (std::size_t byte = 0; byte < content_of(beside).size(); ++byte) {
        flip(beside, byte);
        INFO(byte);
        CHECK_FALSE(refusal().empty());
        flip(beside, byte);
    }
    CHECK(refusal().empty());
    // A file that another program wrote in its place is not compared with them.
    write_tensors(folder / "other", {{"x", "F32", {1}}}, numbered_bytes(4));
    std::filesystem::copy(folder / "other", file,
                          std::filesystem::copy_options::overwrite_existing);
    CHECK(SafetensorsReader(file).find("x") != nullptr);
    // Copied alone it is read without verification.
    set_content(file, good);
    std::filesystem::remove(beside);
    CHECK(refusal().empty());
    flip(file, good.size() - 1);
    CHECK(refusal().empty());
}

TEST_CASE("A failed export leaves nothing behind and can be repeated") {
    TemporaryFolder const folder;
    write_exports(folder.path());
    std::string const good = content_of(folder / "consolidated.safetensors");
    auto const data = folder / "all/one/data-00001.safetensors";
    std::string const stored = content_of(data);
    auto const file = folder / "again.safetensors";
    set_content(folder / "again.safetensors.incomplete", "of a process that was killed");
    auto const before = entries(folder.path());
    flip(data, stored.size() / 2);
    {
        CheckpointReader checkpoint(folder / "all/one");
        CHECK_THROWS_AS(consolidate(checkpoint, file), CheckpointError);
    }
    CHECK_FALSE(std::filesystem::exists(file));
    CHECK(entries(folder.path()).size() == before.size() - 1);
    set_content(data, stored);
    CheckpointReader checkpoint(folder / "all/one");
    consolidate(checkpoint, file);
    CHECK(content_of(file) == good);
    CHECK_THROWS_WITH(consolidate(checkpoint, file),
                      contains_text("again.safetensors' exists; remove it"));
    CHECK(content_of(file) == good);
    std::filesystem::create_symlink("gone", folder / "link.safetensors");
    CHECK_THROWS_WITH(consolidate(checkpoint, folder / "link.safetensors"),
                      contains_text("exists; remove it"));
}

TEST_CASE("A reader of many files keeps few of them open") {
    TemporaryFolder const folder;
    constexpr std::uint64_t files = 40;
    constexpr std::uint64_t each = 100;
    Manifest manifest;
    manifest.types = {{{"parameter", "F32"}}};
    manifest.parameters = {{"x", {files * each}, 0, 0, true, {}}};
    auto const data = numbered_bytes(files * each * 4);
    for (std::uint64_t file = 0; file < files; ++file) {
        manifest.parameters[0].intervals.push_back({file, file * each, (file + 1) * each});
        std::string const name = std::to_string(file) + ".safetensors";
        auto const begin = data.begin() + static_cast<std::ptrdiff_t>(file * each * 4);
        manifest.files.push_back(
            {name, write_tensors(folder / name,
                                 {{tensor_name(manifest.types[0][0], manifest.parameters[0],
                                               manifest.parameters[0].intervals.back()),
                                   "F32",
                                   {each}}},
                                 {begin, begin + each * 4})});
    }
    set_content(folder / "manifest.json", manifest.to_json());
    auto const open_files = [] {
        std::filesystem::directory_iterator const all("/proc/self/fd");
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    };
    std::size_t const before = open_files();
    CheckpointReader reader(folder.path());
    std::size_t most = 0;
    for (int pass = 0; pass < 2; ++pass) { // the second one opens files again
        for (std::uint64_t file = 0; file < files; ++file) {
            std::vector<std::byte> items(each * 4);
            reader.read_items(0, 0, reader.manifest().parameters[0].intervals[file], 0, items);
            CHECK(std::equal(items.begin(), items.end(),
                             data.begin() + static_cast<std::ptrdiff_t>(file * each * 4)));
            most = std::max(most, open_files() - before);
        }
    }
    CHECK(most == CheckpointReader::most_open);
    // A file that was exchanged in between is not believed.
    write_tensors(folder / "other", {{"x[0:100]", "F32", {each}}}, numbered_bytes(each * 4, 9));
    std::filesystem::rename(folder / "other", folder / "0.safetensors");
    std::vector<std::byte> items(each * 4);
    CHECK_THROWS_AS(reader.read_items(0, 0, reader.manifest().parameters[0].intervals[0], 0, items),
                    CheckpointError);
}

TEST_CASE("An export while averages are shown holds them, and a checkpoint is refused then") {
    using Stage = ZeroStage<3, Parameters<bfloat16>, Averaged<AdamW>>;
    TemporaryFolder const folder;
    auto const seen = on_ranks<std::string>(2, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator, {.optimizer = {.decay = 0.5}});
        train(*toy.engine, communicator, 0, 3);
        TrainingState state(*toy.engine);
        std::vector<float> averages = state.full_optimizer_state(0, "average");
        save_parameters(*toy.engine, folder / "weights.safetensors");
        std::string refusal;
        {
            AveragedWeights const shown(*toy.engine);
            save_parameters(*toy.engine, folder / "averages.safetensors");
            refusal =
                outcome_of([&] { save_checkpoint(*toy.engine, folder / "checkpoints"); }).message;
        }
        save_parameters(*toy.engine, folder / "again.safetensors");
        for (auto const& [name, is_average] :
             {std::pair{"weights", false}, {"averages", true}, std::pair{"again", false}}) {
            SafetensorsReader reader(folder / (std::string(name) + ".safetensors"));
            std::vector<float> values(averages.size());
            reader.read(reader.tensors().front(), 0, std::as_writable_bytes(std::span(values)));
            if ((values == averages) != is_average) {
                return "wrong values in " + std::string(name);
            }
        }
        return refusal;
    });
    for (std::string const& refusal : seen) {
        CHECK_THAT(refusal, contains_text("save_checkpoint() while the parameters are averages"));
    }
    CHECK(content_of(folder / "weights.safetensors") == content_of(folder / "again.safetensors"));
}

} // namespace zero::test::exports_test
