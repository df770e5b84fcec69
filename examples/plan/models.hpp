#pragma once

// Models for the planner, one unit for each layer. Known ones are listed tensor by tensor: the
// embeddings are in the first unit, the last norm and the head in the last one.

#include <zero/zero.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace planner {

struct Tensor {
    char const* name;
    std::size_t elements;
};

/// Appends `tensors` as the parameters of one layer.
inline void add_layer(std::vector<zero::ParameterSpec>& model, std::size_t layer,
                      std::vector<Tensor> const& tensors) {
    for (Tensor const& tensor : tensors)
        model.push_back({.name = "layer" + std::to_string(layer) + "." + tensor.name,
                         .elements = tensor.elements,
                         .units = {layer + 1}});
}

/// GPT-2 (Radford et al., 2019): the head is the token embedding, which two units therefore use.
inline std::vector<zero::ParameterSpec> gpt2(std::size_t layers, std::size_t width) {
    std::size_t const last = layers + 1;
    std::vector<zero::ParameterSpec> model{
        {.name = "embedding", .elements = 50257 * width, .units = {0, last}},
        {.name = "positions", .elements = 1024 * width, .units = {0}}};
    for (std::size_t layer = 0; layer < layers; ++layer)
        add_layer(model, layer,
                  {{"norm1.weight", width},
                   {"norm1.bias", width},
                   {"qkv.weight", 3 * width * width},
                   {"qkv.bias", 3 * width},
                   {"attention.weight", width * width},
                   {"attention.bias", width},
                   {"norm2.weight", width},
                   {"norm2.bias", width},
                   {"up.weight", 4 * width * width},
                   {"up.bias", 4 * width},
                   {"down.weight", 4 * width * width},
                   {"down.bias", width}});
    model.push_back({.name = "norm.weight", .elements = width, .units = {last}});
    model.push_back({.name = "norm.bias", .elements = width, .units = {last}});
    return model;
}

/// Llama 3 with 8 billion parameters (Dubey et al., 2024): 8 key heads for 32 query heads, and a
/// head that is not tied to the embedding.
inline std::vector<zero::ParameterSpec> llama3_8b() {
    std::size_t const layers = 32;
    std::size_t const width = 4096;
    std::size_t const inner = 14336;
    std::size_t const tokens = 128256;
    std::vector<zero::ParameterSpec> model{
        {.name = "embedding", .elements = tokens * width, .units = {0}}};
    for (std::size_t layer = 0; layer < layers; ++layer)
        add_layer(model, layer,
                  {{"norm1", width},
                   {"query", width * width},
                   {"key", width * width / 4},
                   {"value", width * width / 4},
                   {"attention", width * width},
                   {"norm2", width},
                   {"gate", inner * width},
                   {"up", inner * width},
                   {"down", width * inner}});
    model.push_back({.name = "norm", .elements = width, .units = {layers + 1}});
    model.push_back({.name = "head", .elements = tokens * width, .units = {layers + 1}});
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

/// @throws zero::InvalidArgument naming the known models
inline std::vector<zero::ParameterSpec> model_named(std::string_view name) {
    if (name == "gpt2") return gpt2(12, 768);
    if (name == "gpt2-xl") return gpt2(48, 1600);
    if (name == "llama3-8b") return llama3_8b();
    throw zero::InvalidArgument("--model " + std::string(name)
                                + ": known are gpt2, gpt2-xl and llama3-8b");
}

} // namespace planner
