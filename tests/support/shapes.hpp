#pragma once

// Parameter lists of known models, shared by tests and benchmarks.

#include <zero/layout/parameter_spec.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace zero::test {

/// @brief The output layer of a language model.
enum class Head {
    tied,    ///< shares the token embedding, which then belongs to the first and the last unit
    separate ///< is a matrix of its own, registered last
};

inline constexpr std::size_t gpt2_tensors = 148;
inline constexpr std::size_t gpt2_elements = 124'439'808;          ///< with a tied head
inline constexpr std::size_t gpt2_block_elements = 7'087'872;      ///< one of the twelve blocks
inline constexpr std::size_t gpt2_embedding_elements = 38'597'376; ///< 50257 x 768
inline constexpr std::size_t gpt2_units =
    /// Embeddings, twelve blocks, last norm with the head.
    14;

/// @brief Returns GPT-2 with 124 million parameters. Every size is a multiple of 64, even of 256,
/// but for W above 4 not of W * 64.
inline std::vector<ParameterSpec> gpt2_124m(Head head = Head::tied) {
    struct Tensor {
        char const* name;
        std::size_t elements;
    };
    constexpr std::size_t width = 768;
    constexpr Tensor block[] = {{"ln1.w", width},
                                {"ln1.b", width},
                                {"qkv.w", width * 3 * width},
                                {"qkv.b", 3 * width},
                                {"proj.w", width * width},
                                {"proj.b", width},
                                {"ln2.w", width},
                                {"ln2.b", width},
                                {"fc.w", width * 4 * width},
                                {"fc.b", 4 * width},
                                {"proj2.w", 4 * width * width},
                                {"proj2.b", width}};
    std::size_t const last = gpt2_units - 1;
    std::vector<ParameterSpec> model;
    std::vector<std::size_t> embedding_units{0};
    if (head == Head::tied) {
        embedding_units.push_back(last);
    }
    model.push_back({"wte", gpt2_embedding_elements, embedding_units, 0, true});
    model.push_back({"wpe", 1024 * width, {0}, 0, true});
    for (std::size_t layer = 0; layer < 12; ++layer) {
        for (Tensor const& tensor : block) {
            model.push_back({"h" + std::to_string(layer) + "." + tensor.name,
                             tensor.elements,
                             {layer + 1},
                             0,
                             true});
        }
    }
    model.push_back({"lnf.w", width, {last}, 0, true});
    model.push_back({"lnf.b", width, {last}, 0, true});
    if (head == Head::separate) {
        model.push_back({"head", gpt2_embedding_elements, {last}, 0, true});
    }
    return model;
}

/// @brief Returns a model whose matrices inside layers have their rows, as for `Muon`.
/// @param width of the model: the rows of each
inline std::vector<ParameterSpec> with_matrices(std::vector<ParameterSpec> model,
                                                std::size_t width) {
    for (ParameterSpec& spec : model) {
        bool const is_in_layer = spec.name.find('.') != std::string::npos;
        spec.rows = is_in_layer && spec.elements >= width * width ? width : 0;
    }
    return model;
}

inline constexpr std::size_t llama_7b_tensors = 291;
inline constexpr std::size_t llama_7b_elements = 6'738'415'616;

/// @brief Returns Llama with 7 billion parameters: 32 layers of width 4096, feed-forward width
/// 11008, 32000 tokens, an untied head.
inline std::vector<ParameterSpec> llama_7b() {
    constexpr std::size_t width = 4096;
    constexpr std::size_t inner = 11008;
    constexpr std::size_t tokens = 32'000;
    constexpr std::size_t layers = 32;
    std::vector<ParameterSpec> model{{"embedding", tokens * width, {0}, 0, true}};
    for (std::size_t layer = 0; layer < layers; ++layer) {
        auto const add = [&](char const* name, std::size_t elements) {
            model.push_back(
                {"l" + std::to_string(layer) + "." + name, elements, {layer + 1}, 0, true});
        };
        add("attention_norm", width);
        add("q", width * width);
        add("k", width * width);
        add("v", width * width);
        add("o", width * width);
        add("feed_forward_norm", width);
        add("gate", inner * width);
        add("up", inner * width);
        add("down", width * inner);
    }
    model.push_back({"norm", width, {layers + 1}, 0, true});
    model.push_back({"head", tokens * width, {layers + 1}, 0, true});
    return model;
}

inline constexpr std::size_t llama3_8b_elements = 8'030'261'248;
inline constexpr std::size_t llama3_8b_embedding_elements = 525'336'576; ///< 128256 x 4096
inline constexpr std::size_t llama3_8b_layer_elements = 218'112'000;     ///< one of 32 layers

/// @brief Returns Llama 3 with 8 billion parameters: 32 layers of width 4096 with 8 key heads of
/// 32, feed-forward width 14336, 128256 tokens, an untied head in the unit of the last norm.
inline std::vector<ParameterSpec> llama3_8b() {
    constexpr std::size_t width = 4096;
    constexpr std::size_t inner = 14'336;
    constexpr std::size_t layers = 32;
    std::vector<ParameterSpec> model{{"embedding", llama3_8b_embedding_elements, {0}, 0, true}};
    for (std::size_t layer = 0; layer < layers; ++layer) {
        auto const add = [&](char const* name, std::size_t elements) {
            model.push_back(
                {"l" + std::to_string(layer) + "." + name, elements, {layer + 1}, 0, true});
        };
        add("attention_norm", width);
        add("q", width * width);
        add("k", width * width / 4);
        add("v", width * width / 4);
        add("o", width * width);
        add("feed_forward_norm", width);
        add("gate", inner * width);
        add("up", inner * width);
        add("down", width * inner);
    }
    model.push_back({"norm", width, {layers + 1}, 0, true});
    model.push_back({"head", llama3_8b_embedding_elements, {layers + 1}, 0, true});
    return model;
}

/// @brief Returns the model with all parameters in unit 0.
inline std::vector<ParameterSpec> as_one_unit(std::vector<ParameterSpec> model) {
    for (ParameterSpec& spec : model) {
        spec.units = {0};
    }
    return model;
}

/// @brief Returns one parameter per size, named p0, p1, ...: parameter i belongs to unit i /
/// `per_unit`.
inline std::vector<ParameterSpec> model_of_sizes(std::vector<std::size_t> const& sizes,
                                                 std::size_t per_unit = 1) {
    std::vector<ParameterSpec> model;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        model.push_back({"p" + std::to_string(index), sizes[index], {index / per_unit}, 0, true});
    }
    return model;
}

inline std::size_t elements_of(std::vector<ParameterSpec> const& model) {
    std::size_t sum = 0;
    for (ParameterSpec const& spec : model) {
        sum += spec.elements;
    }
    return sum;
}

} // namespace zero::test
