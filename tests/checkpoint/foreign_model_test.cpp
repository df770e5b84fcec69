#include "foreign_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/stage/tiles.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Models of other programs, in any files and under any names.

namespace zero::test::foreign_model_test {

namespace {

using namespace foreign_model;

/// Loads a model with `load_parameters`, and while an engine is made; returns what is wrong.
template <int N, class T>
std::string load(RandomModel const& random, std::filesystem::path const& path, int world,
                 bool is_everywhere) {
    using Stage = ZeroStage<N, Parameters<T>>;
    Model const& model = random.model;
    auto const wrong = on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model.parameters<T>());
        load_parameters(engine, path, {.may_round = true, .rules = model.rules});
        if (values_of(engine, model.names.size()) != model.values()) {
            return std::string("load_parameters");
        }
        auto const reader =
            std::make_shared<CheckpointReader>(CheckpointReader::of_file(path, model.rules));
        auto list = model.parameters<T>();
        for (auto& parameter : list) {
            parameter.initialise = initialise_from<T>(reader, parameter.name);
            parameter.is_deterministic = is_everywhere;
        }
        Stage made(communicator, list);
        return std::string(values_of(made, model.names.size()) != model.values() ? "initialise_from"
                                                                                 : "");
    });
    for (std::string const& text : wrong) {
        if (!text.empty()) {
            return text;
        }
    }
    return {};
}

} // namespace

TEST_CASE("Tensors that are renamed, joined, cut and transposed load into every stage") {
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
        TemporaryFolder const folder;
        RandomModel random(seed);
        random.write(folder.path());
        int const world = std::vector{1, 2, 3, 5}[random.pick(4)];
        auto const path = seed % 2 == 0 ? folder.path() : folder / "model.safetensors.index.json";
        bool const is_everywhere = random.pick(2) != 0;
        INFO("seed " << seed << ", " << world << " ranks");
        CHECK(load<0, float>(random, path, world, is_everywhere).empty());
        CHECK(load<1, float16>(random, path, world, is_everywhere).empty());
        CHECK(load<2, float>(random, path, world, is_everywhere).empty());
        CHECK(load<3, bfloat16>(random, path, world, is_everywhere).empty());
    }
}

TEST_CASE("A cache of Hugging Face, whose files are links, loads through links alone") {
    TemporaryFolder const folder;
    RandomModel random(5);
    auto const snapshot = folder / "snapshot";
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directory(folder / "blobs");
    random.write(snapshot);
    for (std::string const& name : entries(snapshot)) {
        std::filesystem::rename(snapshot / name, folder / ("blobs/hash-of-" + name));
        std::filesystem::create_symlink("../blobs/hash-of-" + name, snapshot / name);
    }
    std::filesystem::create_directory_symlink("snapshot", folder / "main");
    CHECK(entries(snapshot).size() > 2);
    CHECK(load<3, float>(random, folder / "main", 2, true).empty());
    std::filesystem::remove(folder / ("blobs/hash-of-" + entries(snapshot)[0]));
    CHECK_THROWS_AS(CheckpointReader::of_file(folder / "main"), CheckpointError);
}

TEST_CASE(
    "The first line that names a tensor counts, and * stands for the same text in each name") {
    TemporaryFolder const folder;
    auto const tensor = [](std::string const& name) {
        return Tensor(name, DType::float32, {1}, [](std::size_t) { return 1.0F; });
    };
    write_file(folder / "file",
               {tensor("h.0.ln.weight"), tensor("h.10.ln.weight"), tensor("h.10.mlp.up.weight"),
                tensor("head"), tensor("h.mask"), tensor("h.0.mask"), tensor("h..x")});
    auto const reader = CheckpointReader::of_file(folder / "file", {{"", {"*.mask"}},
                                                                    {"norm.*.of.*", {"h.*.ln.*"}},
                                                                    {"*/*", {"h.*.*"}},
                                                                    {"never.*", {"h.*"}}});
    Names names;
    for (ManifestParameter const& parameter : reader.manifest().parameters) {
        names.push_back(parameter.name);
    }
    std::sort(names.begin(), names.end());
    CHECK(
        names
        == Names{"10/mlp.up.weight", "head", "never..x", "norm.0.of.weight", "norm.10.of.weight"});
    CHECK(reader.problems().empty());
}

TEST_CASE("Scalars, vectors and tensors of three dimensions are joined and cut by rows") {
    TemporaryFolder const folder;
    auto const tensor = [](std::string const& name, std::vector<std::size_t> const& shape,
                           std::size_t first) {
        return Tensor(name, DType::float32, shape,
                      [=](std::size_t i) { return static_cast<float>(first + i); });
    };
    write_file(folder / "file",
               {tensor("one", {}, 0), tensor("two", {}, 1), tensor("x", {2, 3, 2}, 0),
                tensor("y", {1, 3, 2}, 12), tensor("v", {5}, 0)});
    auto reader = CheckpointReader::of_file(
        folder / "file",
        {{"scalars", {"one", "two"}}, {"cube", {"x", "y"}}, {"end", {"v"}, true, true, {3, 5}}});
    CHECK(reader.problems().empty());
    CHECK(Names(reader.left_over().begin(), reader.left_over().end())
          == Names{"no parameter has 3 of the 5 elements of tensor 'v', shape [5]"});
    auto const check = [&](char const* name, std::vector<std::uint64_t> const& shape,
                           std::size_t first) {
        auto const& parameter = reader.manifest().parameters[*reader.find(name)];
        CHECK(parameter.shape == shape);
        std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
        reader.read_parameter(name, 0, values);
        for (float const value : values) {
            CHECK(value == static_cast<float>(first++));
        }
    };
    check("scalars", {2}, 0);
    check("cube", {3, 3, 2}, 0);
    check("end", {2}, 3);
}

TEST_CASE("Each rank reads the bytes that it holds, of transposed and joined tensors as well") {
    TemporaryFolder const folder;
    constexpr std::size_t rows = 600;
    constexpr std::size_t columns = 70;
    Model model;
    model.names = {"a", "b"};
    model.shapes = {{rows, columns}, {rows, 2 * columns}};
    model.rules = {{"a", {"x"}, true}, {"b", {"y", "z"}, true, true}};
    std::uint64_t headers = 0;
    std::map<std::string, std::vector<Tensor>> files;
    for (std::string const name : {"x", "y", "z"}) {
        std::size_t const parameter = name == "x" ? 0 : 1;
        std::size_t const first = name == "z" ? columns : 0;
        files[name].emplace_back(
            name, DType::float32, std::vector{columns, rows}, [&](std::size_t i) {
                return value_of(parameter,
                                i % rows * model.shapes[parameter][1] + first + i / rows);
            });
    }
    write_folder(folder.path(), files);
    for (char const* const name : {"x", "y", "z"}) {
        headers += content_of(folder / name).size() - rows * columns * sizeof(float);
    }
    for (int const world : {1, 2, 5}) {
        auto const reports = on_ranks<LoadReport>(world, [&](LoopbackCommunicator& communicator) {
            ZeroStage<3> engine(communicator, model.parameters<float>());
            LoadReport report = load_parameters(engine, folder.path(), {.rules = model.rules});
            report.name = values_of(engine, 2) == model.values() ? "equal" : "not equal";
            return report;
        });
        std::uint64_t needed = 0;
        for (LoadReport const& report : reports) {
            CHECK(report.name == "equal");
            CHECK(report.bytes_read == report.bytes_needed + headers);
            needed += report.bytes_needed;
        }
        CHECK(needed == 3 * rows * columns * sizeof(float));
    }
}

TEST_CASE("An export in several files has the names of Hugging Face, and loads again") {
    TemporaryFolder const folder;
    Model model;
    model.names = {"block0.w", "block0.b", "block1.w", "block1.b", "empty"};
    model.shapes = {{3, 5}, {5}, {3, 5}, {5}, {0, 4}};
    TensorRules const rules{{"block*.b", {"h.*.bias"}}, {"block*", {"h.*"}, true}};
    auto const parameters = [&](bool is_filled) {
        auto list = model.parameters<float>();
        for (std::size_t i = 0; is_filled && i < list.size(); ++i) {
            list[i].initialise = [i](std::size_t begin, std::span<float> values) {
                for (float& value : values) {
                    value = value_of(i, begin++);
                }
            };
        }
        return list;
    };
    auto const file = folder / "out.safetensors";
    auto const equal = on_ranks<int>(3, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, parameters(true));
        save_parameters(engine, folder / "model.safetensors",
                        {.dtype = DType::bfloat16, .max_file_bytes = 1000, .rules = rules});
        save_parameters(engine, file, {.max_file_bytes = 80, .rules = rules});
        save_checkpoint(engine, folder / "checkpoints", {.name = "one"});
        ZeroStage<3> loaded(communicator, parameters(false));
        load_parameters(loaded, folder / "out.safetensors.index.json", {.rules = rules});
        ZeroStage<1> narrow(communicator, parameters(false));
        load_parameters(narrow, folder / "model.safetensors", {.rules = rules});
        return values_of(loaded, 5) == model.values() && values_of(narrow, 5) == model.values() ? 1
                                                                                                : 0;
    });
    CHECK(equal == std::vector<int>{1, 1, 1});
    Names expected{"model.safetensors", "model.safetensors.checksums"};
    for (std::string const number : {"1", "2"}) { // 60 + 20 bytes, twice
        std::string const name = "out-0000" + number + "-of-00002.safetensors";
        expected.insert(expected.end(), {name, name + ".checksums"});
    }
    expected.push_back("out.safetensors.index.json");
    expected.insert(expected.begin(), "checkpoints");
    CHECK(entries(folder.path()) == expected);
    CHECK(content_of(folder / "out.safetensors.index.json") == R"({
  "metadata": {
    "total_size": 160
  },
  "weight_map": {
    "empty": "out-00002-of-00002.safetensors",
    "h.0.bias": "out-00001-of-00002.safetensors",
    "h.0.w": "out-00001-of-00002.safetensors",
    "h.1.bias": "out-00002-of-00002.safetensors",
    "h.1.w": "out-00002-of-00002.safetensors"
  }
}
)");
    SafetensorsReader const first(folder / "out-00001-of-00002.safetensors");
    CHECK(first.find("h.0.w")->shape == std::vector<std::uint64_t>{5, 3});
    // The same without an engine, one tensor to a file, since none is smaller than a byte.
    CheckpointReader checkpoint(folder / "checkpoints/one");
    consolidate(checkpoint, folder / "each.safetensors", DType::float32, {}, 1);
    CHECK(std::filesystem::exists(folder / "each-00004-of-00004.safetensors"));
    CHECK_FALSE(std::filesystem::exists(folder / "each.safetensors"));
    auto each = CheckpointReader::of_file(folder / "each.safetensors.index.json");
    for (std::size_t i = 0; i < model.names.size(); ++i) {
        std::vector<float> values(detail::product_of(model.shapes[i]));
        each.read_parameter(model.names[i], 0, values);
        CHECK(values == model.values()[i]);
    }
}

TEST_CASE("Tiles are exported and loaded as one transposed tensor") {
    TemporaryFolder const folder;
    constexpr std::size_t rows = 30;
    constexpr std::size_t columns = 11;
    TensorRules const rules{{"weight", {"w"}, true}};
    auto const seen = on_ranks<std::vector<float>>(3, [&](LoopbackCommunicator& communicator) {
        Parameter<float> weight{.name = "weight"};
        weight.shape = {rows, columns};
        auto const flat = [](auto& engine, std::size_t parameters) {
            std::vector<float> all;
            for (auto const& values : values_of(engine, parameters)) {
                all.insert(all.end(), values.begin(), values.end());
            }
            return all;
        };
        ZeroStage<3> empty(communicator, tiles(weight, 4));
        weight.initialise = [](std::size_t begin, std::span<float> values) {
            for (float& value : values) {
                value = value_of(0, begin++);
            }
        };
        ZeroStage<3> engine(communicator, tiles(weight, 6));
        save_parameters(engine, folder / "model.safetensors", {.rules = rules});
        load_parameters(empty, folder.path(), {.rules = rules});
        auto const all = flat(engine, 6);
        return flat(empty, 4) == all ? all : std::vector<float>();
    });
    SafetensorsReader file(folder / "model.safetensors");
    CHECK(file.find("w")->shape == std::vector<std::uint64_t>{columns, rows});
    std::vector<float> stored(rows * columns);
    file.read(*file.find("w"), 0, std::as_writable_bytes(std::span(stored)));
    for (std::size_t i = 0; i < stored.size(); ++i) {
        stored[i] -= value_of(0, i % rows * columns + i / rows);
    }
    CHECK(stored == std::vector<float>(rows * columns, 0.0F));
    for (auto const& values : seen) {
        CHECK(values.size() == rows * columns);
    }
}

} // namespace zero::test::foreign_model_test
