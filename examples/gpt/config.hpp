#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace gpt {

/// @brief The shape of a byte-level GPT: every byte is a token, so there is no tokenizer and the
/// vocabulary is fixed.
struct Config {
    std::size_t layers = 2;   ///< transformer blocks, at least 1
    std::size_t width = 64;   ///< channels of the residual stream; a multiple of `heads`
    std::size_t heads = 4;    ///< attention heads of `width / heads` channels each
    std::size_t context = 64; ///< tokens of one sample, at least 1

    static constexpr std::size_t vocabulary = 256;

    constexpr std::size_t head_width() const noexcept { return width / heads; }
    constexpr std::size_t hidden_width() const noexcept { return 4 * width; } ///< width of the MLP

    // Unit numbers in the order of the forward pass; a trainer gathers and releases the parameters
    // of one unit together.
    static constexpr std::size_t embedding_unit() noexcept { return 0; }
    static constexpr std::size_t block_unit(std::size_t layer) noexcept { return 1 + layer; }
    constexpr std::size_t head_unit() const noexcept { return 1 + layers; }
    constexpr std::size_t units() const noexcept { return 2 + layers; }
};

/// @brief The configuration for a number of layers and a width from a command line, with heads of
/// about 32 channels.
/// @throws std::invalid_argument if the width is not a multiple of 16 (all heads have the same
/// width) or a number is zero.
inline Config make_config(std::size_t layers, std::size_t width, std::size_t context) {
    if (layers == 0 || context == 0) {
        throw std::invalid_argument("gpt: layers and context must be at least 1");
    }
    if (width == 0 || width % 16 != 0) {
        throw std::invalid_argument("gpt: the width must be a positive multiple of 16, but is "
                                    + std::to_string(width));
    }
    std::size_t const head_width = width % 32 == 0 && width >= 64 ? 32 : 16;
    return Config{
        .layers = layers, .width = width, .heads = width / head_width, .context = context};
}

} // namespace gpt
