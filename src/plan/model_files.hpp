#pragma once

// Models for the planner from files: the headers of safetensors files, or a config.json of Hugging
// Face.

#include "models.hpp"

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/detail/json_tree.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>
#include <zero/core/error.hpp>
#include <zero/layout/parameter_spec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace planner {

/// Reads sizes from a config.json, and names the file in what it refuses.
class Config {
public:
    /// @throws zero::CheckpointError, zero::InvalidArgument
    explicit Config(std::filesystem::path const& file) : _file(file.string()) {
        constexpr std::uint64_t most_bytes = 1U << 24U;
        constexpr std::size_t most_levels = 64;
        std::string const text =
            zero::detail::read_text(file, most_bytes, zero::detail::File::Links::followed);
        bool is_object = false;
        try {
            is_object = _tree.parse(text, most_levels) && _tree.root().is_object();
        } catch (nlohmann::json::exception const&) {}
        if (!is_object) refuse("is no JSON object; give the file that came with the model");
    }

    [[nodiscard]] bool has(char const* name) const {
        return _tree.root().contains(name) && !_tree.root().at(name).is_null();
    }

    [[nodiscard]] bool is_index() const { return has("weight_map"); }

    [[nodiscard]] std::string model_type() const {
        if (!has("model_type") || !_tree.root().at("model_type").is_string())
            refuse("names no 'model_type'" + other_ways());
        return _tree.root().at("model_type").get<std::string>();
    }

    /// Returns a positive number; `otherwise` if there is none.
    [[nodiscard]] std::size_t size(char const* name, std::size_t otherwise = 0) const {
        if (!has(name)) {
            if (otherwise == 0) refuse(std::string("lacks '") + name + "'" + other_ways());
            return otherwise;
        }
        constexpr std::uint64_t most = 1'000'000'000;
        auto const& value = _tree.root().at(name);
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0
            || value.get<std::uint64_t>() > most)
            refuse(std::string("has a '") + name + "' which is no whole number from 1 to 10^9");
        return value.get<std::size_t>();
    }

    [[nodiscard]] bool flag(char const* name, bool otherwise) const {
        if (!has(name)) return otherwise;
        if (!_tree.root().at(name).is_boolean())
            refuse(std::string("has a '") + name + "' which is neither true nor false");
        return _tree.root().at(name).get<bool>();
    }

    [[noreturn]] void refuse(std::string const& why) const {
        throw zero::InvalidArgument("'" + _file + "' " + why + ".");
    }

    static std::string other_ways() {
        return "; give the safetensors header of the model instead (a file, a folder, or "
               "model.safetensors.index.json)";
    }

private:
    std::string _file;
    zero::detail::JsonTree _tree;
};

/// Returns the model of a config.json, with the defaults of transformers for what it lacks.
/// @throws zero::InvalidArgument naming what is not known, and the remedy
inline std::vector<zero::ParameterSpec> model_of_config(Config const& config) {
    std::string const type = config.model_type();
    if (type == "gpt2") {
        std::size_t const width = config.size("n_embd");
        return gpt2({.layers = config.size("n_layer"),
                     .width = width,
                     .inner = config.size("n_inner", 4 * width),
                     .tokens = config.size("vocab_size"),
                     .positions = config.size("n_positions"),
                     .is_tied = config.flag("tie_word_embeddings", true)});
    }
    if (type != "llama" && type != "mistral" && type != "qwen2")
        config.refuse("has the model_type '" + type
                      + "', and known are gpt2, llama, mistral and qwen2" + Config::other_ways());
    std::size_t const width = config.size("hidden_size");
    std::size_t const heads = config.size("num_attention_heads");
    // Only Llama is older than shared key heads.
    std::size_t const key_heads = config.size("num_key_value_heads", type == "llama" ? heads : 0);
    bool const names_head = type != "qwen2" && config.has("head_dim");
    if (!names_head && width % heads != 0)
        config.refuse("has a 'hidden_size' of " + std::to_string(width)
                      + ", which its 'num_attention_heads' of " + std::to_string(heads)
                      + " do not divide");
    if (heads % key_heads != 0)
        config.refuse("has " + std::to_string(heads) + " heads, which its 'num_key_value_heads' of "
                      + std::to_string(key_heads) + " do not divide");
    std::size_t const head = names_head ? config.size("head_dim") : width / heads;
    bool const has_bias = type == "llama" && config.flag("attention_bias", false);
    return llama({.layers = config.size("num_hidden_layers"),
                  .width = width,
                  .inner = config.size("intermediate_size"),
                  .tokens = config.size("vocab_size"),
                  .query_elements = heads * head,
                  .key_elements = key_heads * head,
                  .has_qkv_bias = has_bias || type == "qwen2",
                  .has_attention_bias = has_bias,
                  .has_inner_bias = type == "llama" && config.flag("mlp_bias", false),
                  .is_tied = config.flag("tie_word_embeddings", false)});
}

/// Returns the number between dots in a name such as "model.layers.12.mlp.up_proj.weight".
inline std::optional<std::size_t> layer_in(std::string_view name) {
    constexpr std::size_t most_digits = 6;
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1)) {
        std::size_t const end = name.find('.', dot + 1);
        if (end == std::string_view::npos) break;
        std::string_view const part = name.substr(dot + 1, end - dot - 1);
        if (!part.empty() && part.size() <= most_digits
            && part.find_first_not_of("0123456789") == std::string_view::npos)
            return std::stoul(std::string(part));
    }
    return std::nullopt;
}

/// Returns whether a tensor is trained: no integers, and no mask of GPT-2's attention, which has
/// the shape [1, 1, n, n].
inline bool is_parameter(zero::TensorEntry const& tensor) {
    auto const& shape = tensor.shape;
    bool const is_mask =
        shape.size() == 4 && shape[0] == 1 && shape[1] == 1 && shape[2] == shape[3] && shape[2] > 1;
    bool const is_real = tensor.dtype.starts_with('F') || tensor.dtype == "BF16";
    return is_real && !is_mask && !zero::detail::holds_checksums(tensor.name);
}

/// Returns the parameters of tensors, of which no header tells the order of use: a number between
/// dots in a name is that of a layer, embeddings come before the first one, and the others after
/// the last one. An embedding without a head is one.
inline std::vector<zero::ParameterSpec>
model_of_tensors(std::vector<zero::TensorEntry> const& tensors) {
    std::size_t layers = 0;
    bool has_head = false;
    auto const contains_any = [](std::string_view name, auto const&... parts) {
        return ((name.find(parts) != std::string_view::npos) || ...);
    };
    for (zero::TensorEntry const& tensor : tensors) {
        auto const layer = layer_in(tensor.name);
        layers = std::max(layers, layer.value_or(0) + 1);
        has_head = has_head || (!layer && contains_any(tensor.name, "head", "output", "embed_out"));
    }
    std::vector<zero::ParameterSpec> model;
    for (zero::TensorEntry const& tensor : tensors) {
        if (!is_parameter(tensor)) continue;
        std::string_view const name = tensor.name;
        std::size_t elements = 1; // a header whose tensors overflow is refused where it is read
        for (std::uint64_t const size : tensor.shape) elements *= static_cast<std::size_t>(size);
        bool const is_tokens =
            name.ends_with("wte.weight") || name.ends_with("embed_tokens.weight");
        auto const layer = layer_in(name);
        bool const is_first = is_tokens || contains_any(name, "embed", "wpe", "wte");
        std::vector<std::size_t> units{layer ? *layer + 1 : is_first ? 0 : layers + 1};
        if (is_tokens && !has_head) units.push_back(layers + 1);
        model.push_back({.name = tensor.name, .elements = elements, .units = std::move(units)});
    }
    std::stable_sort(model.begin(), model.end(), [](auto const& one, auto const& other) {
        return one.units.front() < other.units.front();
    });
    // Units are numbered without gaps.
    std::vector<std::size_t> used;
    for (auto const& parameter : model)
        used.insert(used.end(), parameter.units.begin(), parameter.units.end());
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (auto& parameter : model)
        for (std::size_t& unit : parameter.units)
            unit = static_cast<std::size_t>(std::lower_bound(used.begin(), used.end(), unit)
                                            - used.begin());
    return model;
}

/// Returns the model of safetensors files. @throws zero::CheckpointError
inline std::vector<zero::ParameterSpec> model_of_headers(std::filesystem::path const& path) {
    auto const files = zero::detail::ModelFiles::at(path);
    std::vector<std::unique_ptr<zero::SafetensorsReader>> opened;
    std::vector<zero::TensorEntry> tensors;
    for (auto const& file : files.files) {
        opened.push_back(std::make_unique<zero::SafetensorsReader>(file));
        opened.back()->close();
        auto const& found = opened.back()->tensors();
        tensors.insert(tensors.end(), found.begin(), found.end());
    }
    files.require_tensors(opened);
    return model_of_tensors(tensors);
}

/// Returns a model by its name, its safetensors files, or its config.json. A folder with both has
/// its files read, which say what there is.
/// @throws zero::InvalidArgument, zero::CheckpointError
inline std::vector<zero::ParameterSpec> model_named(std::string const& name) {
    if (auto known = known_model(name); !known.empty()) return known;
    std::filesystem::path path = name;
    std::error_code error;
    if (!std::filesystem::exists(path, error))
        throw zero::InvalidArgument("--model " + name
                                    + ": known are gpt2, gpt2-medium, gpt2-large, gpt2-xl and "
                                      "llama3-8b, and there is no file or folder of this name");
    bool const is_folder = std::filesystem::is_directory(path, error);
    auto const has = [&](char const* file) { return std::filesystem::exists(path / file, error); };
    if (is_folder && has("config.json") && !has("model.safetensors")
        && !has("model.safetensors.index.json")) {
        path /= "config.json";
    }
    if (path.extension() == ".json") {
        Config const config(path);
        if (!config.is_index()) return model_of_config(config);
    }
    auto model = model_of_headers(path);
    if (model.empty())
        throw zero::InvalidArgument("'" + name + "' has no tensor of floating-point numbers.");
    return model;
}

} // namespace planner
