#include "src/plan/model_files.hpp"

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/safetensors_writer.hpp>
#include <zero/core/error.hpp>
#include <zero/layout/parameter_spec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// The planner's models: their tensors are those of the programs that define them.

namespace zero::test::models_test {

namespace {

struct Count {
    std::size_t tensors;
    std::size_t elements;

    friend bool operator==(Count, Count) = default;
};

Count count(std::vector<ParameterSpec> const& model) {
    Count found{model.size(), 0};
    for (ParameterSpec const& spec : model) {
        found.elements += spec.elements;
    }
    return found;
}

Count count_of_config(std::string const& json) {
    TemporaryFolder const folder;
    set_content(folder / "config.json", json);
    Count const found = count(planner::model_named(folder.path().string()));
    CHECK(count(planner::model_named((folder / "config.json").string())) == found);
    return found;
}

std::string refusal_of_config(std::string const& json) {
    try {
        count_of_config(json);
    } catch (Error const& error) {
        return error.what();
    }
    return "";
}

/// A tensor of floats or, if `dtype` says so, of other numbers; its bytes are zeros.
TensorEntry tensor(std::string name, std::vector<std::uint64_t> shape, std::string dtype = "F32") {
    return {.name = std::move(name), .dtype = std::move(dtype), .shape = std::move(shape)};
}

ParameterSpec const& find(std::vector<ParameterSpec> const& model, std::string const& name) {
    return *std::find_if(model.begin(), model.end(),
                         [&](ParameterSpec const& spec) { return spec.name == name; });
}

std::string const llama_8b =
    R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "tie_word_embeddings": false})";

} // namespace

// The numbers are those of AutoModelForCausalLM.from_config of transformers 4.46.3 on the meta
// device: the length of named_parameters() and the sum of numel(), for the same configurations.
TEST_CASE("A config.json gives the number of tensors and elements that transformers makes of it") {
    CHECK(count_of_config(R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
                              "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null})")
          == Count{148, 124'439'808});
    CHECK(count_of_config(R"({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64,
                              "n_embd": 96, "n_layer": 2, "n_head": 4, "n_inner": 200,
                              "tie_word_embeddings": false})")
          == Count{29, 216'592});
    CHECK(count_of_config(llama_8b) == Count{291, 8'030'261'248});
    CHECK(count_of_config(R"({"model_type": "llama", "hidden_size": 2048,
                              "intermediate_size": 8192, "num_hidden_layers": 16,
                              "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
                              "vocab_size": 128256, "tie_word_embeddings": true})")
          == Count{146, 1'235'814'400});
    CHECK(count_of_config(R"({"model_type": "llama", "hidden_size": 96, "intermediate_size": 200,
                              "num_hidden_layers": 2, "num_attention_heads": 4,
                              "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300,
                              "attention_bias": true, "mlp_bias": true})")
          == Count{35, 248'704});
    CHECK(count_of_config(R"({"model_type": "mistral", "hidden_size": 4096,
                              "intermediate_size": 14336, "num_hidden_layers": 32,
                              "num_attention_heads": 32, "num_key_value_heads": 8,
                              "vocab_size": 32000})")
          == Count{291, 7'241'732'096});
    CHECK(count_of_config(R"({"model_type": "mistral", "hidden_size": 5120,
                              "intermediate_size": 14336, "num_hidden_layers": 40,
                              "num_attention_heads": 32, "num_key_value_heads": 8,
                              "head_dim": 128, "vocab_size": 131072})")
          == Count{363, 12'247'782'400});
    CHECK(count_of_config(R"({"model_type": "qwen2", "hidden_size": 3584,
                              "intermediate_size": 18944, "num_hidden_layers": 28,
                              "num_attention_heads": 28, "num_key_value_heads": 4,
                              "vocab_size": 152064, "tie_word_embeddings": false})")
          == Count{339, 7'615'616'512});
    CHECK(count_of_config(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
                              "num_hidden_layers": 24, "num_attention_heads": 14,
                              "num_key_value_heads": 2, "vocab_size": 151936,
                              "tie_word_embeddings": true})")
          == Count{290, 494'032'768});
}

TEST_CASE("The known models have the tensors of their published sizes") {
    CHECK(count(planner::model_named("gpt2")) == Count{148, 124'439'808});
    CHECK(count(planner::model_named("gpt2-medium")) == Count{292, 354'823'168});
    CHECK(count(planner::model_named("gpt2-large")) == Count{436, 774'030'080});
    CHECK(count(planner::model_named("gpt2-xl")) == Count{580, 1'557'611'200});
    CHECK(count(planner::model_named("llama3-8b")) == Count{291, 8'030'261'248});
    CHECK_THROWS_WITH(planner::model_named("bert"),
                      contains_text("--model bert: known are gpt2,")
                          && contains_text("no file or folder of this name"));
}

TEST_CASE("A tied head is used by two units, one of its own by the last") {
    TemporaryFolder const folder;
    set_content(folder / "config.json", llama_8b);
    auto const model = planner::model_named(folder.path().string());
    CHECK(find(model, "head").units == std::vector<std::size_t>{33});
    CHECK(find(model, "embedding").units == std::vector<std::size_t>{0});
    CHECK(find(planner::gpt2(2, 64), "embedding").units == std::vector<std::size_t>{0, 3});
}

TEST_CASE("A config.json that does not say enough is refused in a sentence") {
    CHECK_THAT(refusal_of_config(R"({"model_type": "bert", "hidden_size": 768})"),
               contains_text("has the model_type 'bert', and known are gpt2, llama, mistral and "
                             "qwen2; give the safetensors header"));
    CHECK_THAT(refusal_of_config("{}"),
               contains_text("names no 'model_type'; give the safetensors"));
    CHECK_THAT(refusal_of_config(R"({"model_type": 7})"), contains_text("names no 'model_type'"));
    CHECK_THAT(refusal_of_config("[1]"), contains_text("is no JSON object"));
    CHECK_THAT(refusal_of_config("{"), contains_text("is no JSON object"));
    CHECK_THAT(refusal_of_config(std::string(100, '[')), contains_text("is no JSON object"));
    auto const changed = [](std::string const& from, std::string const& to) {
        std::string json = llama_8b;
        return refusal_of_config(json.replace(json.find(from), from.size(), to));
    };
    CHECK_THAT(changed("\"vocab_size\": 128256,", ""), contains_text("lacks 'vocab_size'"));
    CHECK_THAT(changed("4096", "-1"), contains_text("'hidden_size' which is no whole number"));
    CHECK_THAT(changed("4096", "0"), contains_text("'hidden_size' which is no whole number"));
    CHECK_THAT(changed("4096", "4096.5"), contains_text("'hidden_size' which is no whole number"));
    CHECK_THAT(changed("4096", "1000000001"), contains_text("from 1 to 10^9"));
    CHECK_THAT(changed("4096", "4097"), contains_text("'hidden_size' of 4097, which its"));
    CHECK_THAT(changed("heads\": 8", "heads\": 5"), contains_text("has 32 heads, which its"));
    CHECK_THAT(changed("false", "\"no\""), contains_text("neither true nor false"));
    // A newer kind of model shares key heads in another number than the default of its class.
    CHECK_THAT(refusal_of_config(R"({"model_type": "qwen2", "hidden_size": 8,
                                     "num_attention_heads": 2})"),
               contains_text("lacks 'num_key_value_heads'"));
}

TEST_CASE("The header of a model in one file gives its parameters, layer by layer") {
    auto const model = planner::model_of_tensors(
        {tensor("lm_head.weight", {30, 8}), tensor("model.embed_tokens.weight", {30, 8}),
         tensor("model.layers.0.mlp.up.weight", {8, 16}),
         tensor("model.layers.11.mlp.up.weight", {8, 17}), tensor("model.norm.weight", {8}),
         tensor("model.layers.0.position_ids", {64}, "I64"),
         tensor("model.layers.0.attn.bias", {1, 1, 64, 64})});
    CHECK(count(model) == Count{5, 30 * 8 * 2 + 8 * 33 + 8});
    CHECK(find(model, "model.embed_tokens.weight").units == std::vector<std::size_t>{0});
    CHECK(find(model, "model.layers.0.mlp.up.weight").units == std::vector<std::size_t>{1});
    CHECK(find(model, "model.layers.11.mlp.up.weight").units == std::vector<std::size_t>{2});
    CHECK(find(model, "model.norm.weight").units == std::vector<std::size_t>{3});
    CHECK(find(model, "lm_head.weight").units == std::vector<std::size_t>{3});
    auto const tied = planner::model_of_tensors(
        {tensor("wte.weight", {30, 8}), tensor("h.0.w", {8}), tensor("ln_f.weight", {8})});
    CHECK(find(tied, "wte.weight").units == std::vector<std::size_t>{0, 2});
}

TEST_CASE("A file, a folder and an index of several files give the same model") {
    TemporaryFolder const folder;
    auto const write = [&](char const* name, std::vector<TensorEntry> const& tensors) {
        std::size_t elements = 0;
        for (TensorEntry const& entry : tensors) {
            std::size_t product = 1;
            for (std::uint64_t const size : entry.shape) {
                product *= size;
            }
            elements += product;
        }
        SafetensorsWriter writer(folder / name, tensors);
        writer.append(std::vector<std::byte>(2 * elements));
        writer.finish();
    };
    std::vector<TensorEntry> const first{tensor("wte.weight", {30, 8}, "BF16"),
                                         tensor("h.0.weight", {8, 8}, "BF16")};
    std::vector<TensorEntry> const second{tensor("ln_f.weight", {8}, "BF16")};
    write("a.safetensors", first);
    write("b.safetensors", second);
    set_content(folder / "model.safetensors.index.json",
                R"({"weight_map": {"wte.weight": "a.safetensors", "h.0.weight": "a.safetensors",
                                   "ln_f.weight": "b.safetensors"}})");
    Count const expected{3, 30 * 8 + 64 + 8};
    CHECK(count(planner::model_named(folder.path().string())) == expected);
    CHECK(count(planner::model_named((folder / "model.safetensors.index.json").string()))
          == expected);
    CHECK(count(planner::model_named((folder / "b.safetensors").string())) == Count{1, 8});
    set_content(folder / "config.json", llama_8b); // the files say what there is
    CHECK(count(planner::model_named(folder.path().string())) == expected);
    set_content(folder / "b.safetensors", "short");
    CHECK_THROWS_AS(planner::model_named(folder.path().string()), CheckpointError);
}

} // namespace zero::test::models_test
