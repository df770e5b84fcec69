#pragma once

// Models for the planner, tensor by tensor, with one unit for each layer: the embeddings are in the
// first unit, the last norm and the head in the last one.

#include <zero/core/error.hpp>
#include <zero/layout/parameter_spec.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace planner {

struct Tensor {
    char const* name;
    std::size_t elements; ///< 0: the model has no such tensor
};

/// Appends `tensors` as the parameters of one unit.
inline void add_unit(std::vector<zero::ParameterSpec>& model, std::size_t unit,
                     std::string const& prefix, std::vector<Tensor> const& tensors) {
    for (Tensor const& tensor : tensors)
        if (tensor.elements != 0)
            model.push_back(
                {.name = prefix + tensor.name, .elements = tensor.elements, .units = {unit}});
}

/// Appends `tensors` as the parameters of one layer.
inline void add_layer(std::vector<zero::ParameterSpec>& model, std::size_t layer,
                      std::vector<Tensor> const& tensors) {
    add_unit(model, layer + 1, "layer" + std::to_string(layer) + ".", tensors);
}

/// The sizes of GPT-2 (Radford et al., 2019).
struct GptShape {
    std::size_t layers;
    std::size_t width;
    std::size_t inner = 0; ///< width of the feed-forward part; 0: four times the width
    std::size_t tokens = 50257;
    std::size_t positions = 1024;
    bool is_tied = true; ///< the head is the token embedding, which two units therefore use
};

inline std::vector<zero::ParameterSpec> gpt2(GptShape const& shape) {
    std::size_t const width = shape.width;
    std::size_t const inner = shape.inner == 0 ? 4 * width : shape.inner;
    std::size_t const last = shape.layers + 1;
    std::vector<zero::ParameterSpec> model{
        {.name = "embedding", .elements = shape.tokens * width, .units = {0}}};
    if (shape.is_tied) model.front().units.push_back(last);
    add_unit(model, 0, "", {{"positions", shape.positions * width}});
    for (std::size_t layer = 0; layer < shape.layers; ++layer)
        add_layer(model, layer,
                  {{"norm1.weight", width},
                   {"norm1.bias", width},
                   {"qkv.weight", 3 * width * width},
                   {"qkv.bias", 3 * width},
                   {"attention.weight", width * width},
                   {"attention.bias", width},
                   {"norm2.weight", width},
                   {"norm2.bias", width},
                   {"up.weight", inner * width},
                   {"up.bias", inner},
                   {"down.weight", width * inner},
                   {"down.bias", width}});
    add_unit(model, last, "",
             {{"norm.weight", width},
              {"norm.bias", width},
              {"head", shape.is_tied ? 0 : shape.tokens * width}});
    return model;
}

inline std::vector<zero::ParameterSpec> gpt2(std::size_t layers, std::size_t width) {
    return gpt2({.layers = layers, .width = width});
}

/// The sizes of a decoder with rotary positions and a gated feed-forward part, such as Llama 3
/// (Dubey et al., 2024), whose defaults these are, Mistral and Qwen2.
struct LlamaShape {
    std::size_t layers = 32;
    std::size_t width = 4096;
    std::size_t inner = 14336;
    std::size_t tokens = 128256;
    std::size_t query_elements = 4096; ///< of all query heads of a token
    std::size_t key_elements = 1024;   ///< of all key heads, and of all value heads
    bool has_qkv_bias = false;
    bool has_attention_bias = false; ///< of the projection after the heads
    bool has_inner_bias = false;
    bool is_tied = false; ///< as in `GptShape`
};

inline std::vector<zero::ParameterSpec> llama(LlamaShape const& shape) {
    auto const [layers, width, inner, tokens, query, key, qkv, attention, mlp, is_tied] = shape;
    std::size_t const last = layers + 1;
    std::vector<zero::ParameterSpec> model{
        {.name = "embedding", .elements = tokens * width, .units = {0}}};
    if (is_tied) model.front().units.push_back(last);
    for (std::size_t layer = 0; layer < layers; ++layer)
        add_layer(model, layer,
                  {{"norm1", width},
                   {"query", query * width},
                   {"query.bias", qkv ? query : 0},
                   {"key", key * width},
                   {"key.bias", qkv ? key : 0},
                   {"value", key * width},
                   {"value.bias", qkv ? key : 0},
                   {"attention", width * query},
                   {"attention.bias", attention ? width : 0},
                   {"norm2", width},
                   {"gate", inner * width},
                   {"gate.bias", mlp ? inner : 0},
                   {"up", inner * width},
                   {"up.bias", mlp ? inner : 0},
                   {"down", width * inner},
                   {"down.bias", mlp ? width : 0}});
    add_unit(model, last, "", {{"norm", width}, {"head", is_tied ? 0 : tokens * width}});
    return model;
}

/// Returns layers of one parameter each, whose sizes differ by at most one element.
inline std::vector<zero::ParameterSpec> equal_layers(double parameters, double layers) {
    auto const count = static_cast<std::size_t>(layers);
    auto const elements = static_cast<std::size_t>(parameters);
    std::vector<zero::ParameterSpec> model;
    for (std::size_t layer = 0; layer < count; ++layer)
        model.push_back({.name = "layer" + std::to_string(layer),
                         .elements = elements / count + (layer < elements % count ? 1 : 0),
                         .units = {layer}});
    return model;
}

/// Freezes a model, and appends trainable elements in equal parts to its units.
/// @param elements 0: the model stays as it is
inline void add_adapters(std::vector<zero::ParameterSpec>& model, std::size_t units,
                         std::size_t elements) {
    for (zero::ParameterSpec& parameter : model) parameter.trainable = elements == 0;
    for (std::size_t unit = 0; unit < (elements == 0 ? 0 : units); ++unit)
        model.push_back({.name = "adapter" + std::to_string(unit),
                         .elements = elements / units + (unit < elements % units ? 1 : 0),
                         .units = {unit}});
}

/// Returns a known model; empty if there is none of that name.
inline std::vector<zero::ParameterSpec> known_model(std::string_view name) {
    if (name == "gpt2") return gpt2(12, 768);
    if (name == "gpt2-medium") return gpt2(24, 1024);
    if (name == "gpt2-large") return gpt2(36, 1280);
    if (name == "gpt2-xl") return gpt2(48, 1600);
    if (name == "llama3-8b") return llama({});
    return {};
}

} // namespace planner
