#include "foreign_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/checkpoint/load_parts.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

// Files and rules that do not fit are refused on every rank, before anything has changed.

namespace zero::test::foreign_refusals_test {

namespace {

using namespace foreign_model;
using Stage = ZeroStage<3>;

constexpr int world = 3;

/// A model with parameter "a" of shape [4, 3] and "b" of shape [5].
Model model() {
    Model made;
    made.names = {"a", "b"};
    made.shapes = {{4, 3}, {5}};
    return made;
}

Tensor tensor(std::string const& name, std::vector<std::size_t> const& shape,
              DType dtype = DType::float32) {
    return {name, dtype, shape, [](std::size_t i) { return static_cast<float>(i); }};
}

std::vector<Tensor> const good{tensor("a", {4, 3}), tensor("b", {5})};

struct Refusal {
    std::filesystem::path path;
    TensorRules rules;
    std::vector<std::string> parts; ///< of the message
    std::string type = "other";     ///< a CheckpointError
};

/// Returns what is wrong with refusals: one that is none, or misses a part, on any rank; weights
/// that changed; an engine that no longer loads.
std::string wrong(std::vector<Refusal> const& refusals, std::filesystem::path const& loadable) {
    auto const seen = on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model().parameters<float>());
        auto const before = values_of(engine, 2);
        std::string text;
        for (Refusal const& refusal : refusals) {
            Outcome const outcome = outcome_of(
                [&] { load_parameters(engine, refusal.path, {.rules = refusal.rules}); });
            for (std::string const& part : refusal.parts) {
                if (outcome.type != refusal.type
                    || outcome.message.find(part) == std::string::npos) {
                    text += "'" + part + "' is not in " + outcome.type + ": " + outcome.message;
                }
            }
        }
        if (values_of(engine, 2) != before) {
            text += "weights changed";
        }
        load_parameters(engine, loadable);
        return text + (values_of(engine, 2) == before ? "nothing was loaded" : "");
    });
    std::string all;
    for (std::string const& text : seen) {
        all += text;
    }
    return all;
}

} // namespace

TEST_CASE("An index that does not fit its files is refused by name") {
    TemporaryFolder const folder;
    std::vector<Refusal> refusals;
    auto const add = [&](std::vector<std::string> parts, auto const& change) {
        auto const path = folder / std::to_string(refusals.size());
        std::filesystem::create_directory(path);
        write_folder(path, {{"1.safetensors", {good[0]}}, {"2.safetensors", {good[1]}}});
        change(path);
        refusals.push_back({path, {}, std::move(parts)});
    };
    auto const index = [](std::filesystem::path const& path, std::string const& content) {
        set_content(path / "model.safetensors.index.json", content);
    };
    using Path = std::filesystem::path;
    add({"names the file '2.safetensors' of tensor 'b', which is missing", "copy it"},
        [](Path const& path) { std::filesystem::remove(path / "2.safetensors"); });
    add({"'2.safetensors' has no tensor 'b', which the index says"},
        [](Path const& path) { write_file(path / "2.safetensors", {}); });
    add({"tensor 'a' is in '1.safetensors' and in '2.safetensors'"},
        [](Path const& path) { write_file(path / "2.safetensors", good); });
    add({"2.safetensors' is not a valid safetensors file: its tensors have 20 bytes and its data "
         "19"},
        [](Path const& path) {
            std::string const content = content_of(path / "2.safetensors");
            set_content(path / "2.safetensors", content.substr(0, content.size() - 1));
        });
    for (char const* const name : {"../1.safetensors", "/tmp/x", "..", "", "x\\\\1"}) {
        add({"it names the file '", "of tensor 'a', and files are beside the index"},
            [&](Path const& path) {
                index(path, std::string(R"({"weight_map": {"a": ")") + name + "\"}}");
            });
    }
    for (std::string const text :
         {"", "[]", "{", "nothing", R"({"metadata": {}})", R"({"weight_map": {}})",
          R"({"weight_map": ["a"]})", R"({"weight_map": {"a": 1}})",
          R"({"weight_map": {"a": "1.safetensors", "a": "2"}})"}) {
        add({"model.safetensors.index.json' is not the index of a model: "},
            [&](Path const& path) { index(path, text); });
    }
    add({"not the index of a model", "nested too deeply"},
        [&](Path const& path) { index(path, std::string(100000, '[')); });
    add({"has 'model.safetensors' and an index of several files"},
        [](Path const& path) { write_file(path / "model.safetensors", good); });
    add({"has neither 'model.safetensors' nor"},
        [](Path const& path) { std::filesystem::remove(path / "model.safetensors.index.json"); });
    add({"pytorch_model.bin' holds objects of Python (pickle)", "safetensors.torch.save_file("},
        [](Path const& path) {
            std::filesystem::remove(path / "model.safetensors.index.json");
            set_content(path / "pytorch_model.bin", "PK");
        });
    for (std::string const& begin :
         {std::string("PK\3\4\0\0\10\10", 8), std::string("\x80\2\x8a\nl\xfc\x9c"),
          std::string("\x80\4\x95\x60\0\0\0\0\0\0", 10)}) {
        set_content(folder / ("pickle" + std::to_string(begin.size())),
                    begin + std::string(99, 'x'));
        refusals.push_back({folder / ("pickle" + std::to_string(begin.size())),
                            {},
                            {"torch.load(\"", "weights_only=True"}});
    }
    refusals.push_back({folder / "nowhere", {}, {"nowhere"}});
    write_file(folder / "good", good);
    CHECK(wrong(refusals, folder / "good").empty());
}

TEST_CASE("Rules that do not fit the tensors or the parameters are refused in one list") {
    TemporaryFolder const folder;
    write_file(folder / "good", good);
    std::vector<Refusal> refusals;
    auto const add = [&](std::vector<Tensor> const& tensors, TensorRules const& rules,
                         std::vector<std::string> parts) {
        auto const path = folder / ("model" + std::to_string(refusals.size()));
        write_file(path, tensors);
        parts.push_back(path.filename().string() + "' does not fit this engine");
        refusals.push_back({path, rules, std::move(parts)});
    };
    Tensor const b = good[1];
    add({tensor("x", {2, 3}), tensor("y", {2, 4}), b}, {{"a", {"x", "y"}}},
        {"'a' cannot be made of tensor 'y', type F32, shape [2, 4]: it is joined with 'x'"});
    add({tensor("x", {2, 3}), tensor("y", {2, 3}, DType::bfloat16), b}, {{"a", {"x", "y"}}},
        {"'a' cannot be made of tensor 'y', type BF16, shape [2, 3]: it is joined with 'x'"});
    add({tensor("x", {2, 3}), b}, {{"a", {"x", "y"}}},
        {"parameter 'a' lacks tensor 'y', which no file has"});
    add({tensor("x", {2, 3}), b}, {{"a", {"x", "x"}}}, {"'x', which is used already"});
    add({tensor("x", {2, 3}), tensor("y", {2, 3}), b}, {{"a", {"x", "y"}}, {"b", {"y", "b"}}},
        {"parameter 'b' lacks tensor 'y', which is used already, as a whole"});
    add({tensor("x", {4, 3}), tensor("a", {4, 3}), b}, {{"a", {"x"}}},
        {"tensor 'a' is not the only one for parameter 'a'"});
    add({tensor("x", {4, 3}), tensor("y", {4, 3}), b}, {{"a", {"x"}}, {"a", {"y"}}},
        {"tensor 'y' is not the only one for parameter 'a'"});
    add({tensor("x", {8, 3}), b}, {{"a", {"x"}, false, false, {6, 10}}},
        {"'x', type F32, shape [8, 3]: it is the part [6:10] of 8 rows"});
    add({tensor("x", {8, 3}), b}, {{"a", {"x"}, false, false, {2, 6}}},
        {"no parameter has 12 of the 24 elements of tensor 'x', shape [8, 3]", "may_differ"});
    add({tensor("x", {4, 3, 1}), b}, {{"a", {"x"}, true}}, {"only two dimensions are transposed"});
    add({tensor("a", {3, 4}), b}, {}, {"in the checkpoint 12, shape [3, 4]"});
    std::vector<Tensor> many{tensor("left", {2, 9}), b};
    for (std::size_t i = 0; i < 30; ++i) {
        many.push_back(tensor("other" + std::to_string(i), {1, i}));
    }
    add(many, {{"c.*", {"x.*"}}},
        {"the checkpoint has no parameter 'a', shape [4, 3]\n",
         "the model has no parameter 'left' of the checkpoint, shape [2, 9]\n", "\n  and 11 more\n",
         "\n  the rule of 'c.*' names 'x.*', which fits no tensor that is left\n"});
    refusals.push_back(
        {folder / "good", {{"a.*", {"a"}}}, {"different numbers of '*'"}, "InvalidArgument"});
    refusals.push_back({folder / "good", {{"a", {}}}, {"names no tensor"}, "InvalidArgument"});
    CHECK(wrong(refusals, folder / "good").empty());
}

TEST_CASE("Initial values of a parameter whose rule does not fit are refused with the reason") {
    TemporaryFolder const folder;
    write_file(folder / "model", {tensor("x", {2, 3}), good[1]});
    auto const seen = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
        auto const reader = std::make_shared<CheckpointReader>(
            CheckpointReader::of_file(folder / "model", {{"a", {"x", "y"}}}));
        auto list = model().parameters<float>();
        list[0].initialise = initialise_from<float>(reader, "a");
        Stage engine(communicator, list);
    });
    for (Outcome const& outcome : seen.ranks) {
        CHECK_THAT(outcome.message, contains_text("has no parameter 'a'"));
    }
    CHECK_THAT(seen.ranks[0].message, contains_text("parameter 'a' lacks tensor 'y'"));
}

TEST_CASE("Ranks with other rules or other files are refused on every rank") {
    TemporaryFolder const folder;
    write_file(folder / "one", {tensor("x", {8, 3}), good[1]});
    write_file(folder / "other", {tensor("x", {9, 3}), good[1]});
    auto const seen = on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model().parameters<float>());
        auto const before = values_of(engine, 2);
        bool const is_last = communicator.rank() == world - 1;
        auto const load = [&](std::size_t begin, char const* file) {
            return outcome_of([&] {
                       load_parameters(engine, folder / file,
                                       {.may_differ = true,
                                        .rules = {{"a", {"x"}, false, false, {begin, begin + 4}}}});
                   })
                .message;
        };
        std::string const messages =
            load(is_last ? 1 : 0, "one") + load(0, is_last ? "other" : "one");
        return values_of(engine, 2) == before && load(0, "one").empty() ? messages : "";
    });
    for (std::string const& messages : seen) {
        CHECK_THAT(messages,
                   contains_text("ranks 0 and 2 found other tensors, or have other rules"));
    }
}

TEST_CASE("Any change of an index is refused, or leaves the tensors where they are") {
    TemporaryFolder const folder;
    write_folder(folder.path(), {{"1.safetensors", {good[0]}}, {"2.safetensors", {good[1]}}});
    auto const index = folder / "model.safetensors.index.json";
    std::string const content = content_of(index);
    std::mt19937 random(1);
    std::size_t refused = 0;
    constexpr std::size_t changes = 3000;
    for (std::size_t change = 0; change < changes; ++change) {
        std::string changed = content;
        for (std::size_t i = 0; i <= random() % 3; ++i) {
            std::size_t const at = random() % changed.size();
            switch (random() % 3) {
            case 0: changed[at] = static_cast<char>(random()); break;
            case 1: changed.erase(at, 1 + random() % 9); break;
            default: changed.insert(at, content, random() % content.size(), random() % 20);
            }
        }
        set_content(index, changed);
        try {
            auto reader = CheckpointReader::of_file(folder.path());
            std::vector<float> values(12);
            if (reader.find("a")) { // its file may have left the index
                reader.read_parameter("a", 0, values);
                CHECK(values.back() == 11.0F);
            }
        } catch (CheckpointError const&) {
            ++refused;
        }
    }
    CHECK(refused > changes / 2);
    CHECK(refused < changes);
}

TEST_CASE("A checkpoint takes no rules, and is no folder of another program") {
    TemporaryFolder const folder;
    auto const seen = on_ranks<std::string>(2, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model().parameters<float>());
        save_checkpoint(engine, folder / "all", {.name = "one"});
        return outcome_of([&] {
                   load_checkpoint(engine, folder / "all", {.rules = {{"a", {"x"}}}});
               }).message
               + outcome_of([&] { load_parameters(engine, folder / "all/one"); }).message
               + outcome_of([&] {
                     load_parameters(engine, folder / "all", {.name = "one"});
                 }).message
               + outcome_of([&] {
                     std::vector<std::filesystem::path> const parts{folder / "all"};
                     load_parts(engine, parts, {.name = "one", .rules = {{"a", {"x"}}}});
                 }).message;
    });
    for (std::string const& text : seen) {
        CHECK_THAT(text, contains_text("load_checkpoint() takes no LoadOptions::rules"));
        CHECK_THAT(text, contains_text("or load a checkpoint with load_checkpoint()"));
        CHECK_THAT(text, contains_text("load_parameters() takes no LoadOptions::name"));
        CHECK_THAT(text, contains_text("load_parts() takes no LoadOptions::rules"));
    }
}

TEST_CASE("Ranks that save or load two engines in different orders are told") {
    TemporaryFolder const folder;
    auto const check = [](auto const& call) {
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
            Stage a(communicator, model().parameters<float>());
            Stage b(communicator, model().parameters<float>());
            call(communicator.rank() == 0 ? a : b);
        });
        for (Outcome const& outcome : outcomes.ranks) {
            CHECK(outcome.type == "CollectiveMismatch");
            CHECK_THAT(outcome.message, contains_text(" of engine "));
        }
    };
    check([&](Stage& engine) { save_checkpoint(engine, folder / "all", {.name = "one"}); });
    check([&](Stage& engine) { save_parameters(engine, folder / "model.safetensors"); });
    check([&](Stage& engine) { load_checkpoint(engine, folder / "all"); });
    check([&](Stage& engine) { load_parameters(engine, folder / "model.safetensors"); });
}

TEST_CASE("An export that rules cannot name is refused and leaves no file") {
    TemporaryFolder const folder;
    write_file(folder / "good", good);
    auto const seen = on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model().parameters<float>());
        auto const refusal = [&](ExportOptions const& options) {
            return outcome_of(
                       [&] { save_parameters(engine, folder / "model.safetensors", options); })
                .message;
        };
        std::string text = refusal({.rules = {{"a", {"x", "y"}}}});
        text += refusal({.rules = {{"a", {"x"}, false, false, {1, 2}}}});
        text += refusal({.rules = {{"a", {"b"}}}});
        bool const is_first = communicator.rank() == 0;
        if (is_first) {
            set_content(folder / "model-00002-of-00002.safetensors", "");
        }
        text += refusal({.max_file_bytes = 48});
        if (is_first) {
            std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
            set_content(folder / "model.safetensors.index.json", "{}");
        }
        text += refusal({.max_file_bytes = 48});
        text += refusal({.max_file_bytes = 1000});
        if (is_first) { // the second file cannot be created
            std::filesystem::remove(folder / "model.safetensors.index.json");
            std::filesystem::create_directory(folder
                                              / "model-00002-of-00002.safetensors.incomplete");
        }
        return text + refusal({.max_file_bytes = 48});
    });
    for (char const* const part :
         {"'a' is joined from several tensors", "'a' is a part of a tensor",
          "two parameters would be tensor 'b'", "model-00002-of-00002.safetensors' exists",
          "model.safetensors.index.json' exists; remove it or choose another name",
          "would hold two models"}) {
        CHECK_THAT(seen[0], contains_text(part));
    }
    for (std::string const& text : seen) {
        CHECK_THAT(text, contains_text("creating '"));
    }
    CHECK(entries(folder.path()) == Names{"good", "model-00002-of-00002.safetensors.incomplete"});
}

} // namespace zero::test::foreign_refusals_test
