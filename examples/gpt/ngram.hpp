#pragma once

#include "config.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gpt {

/// @brief Losses of the two simplest models of a text, in nats per byte. A network that learned
/// more than letter frequencies is below them.
struct NgramLosses {
    double unigram = 0.0; ///< p(b) from the count of b
    double bigram = 0.0;  ///< p(b | a) from the count of b after a
};

/// @brief Counts n-grams in `training` and measures the mean -log p over the bytes of `validation`
/// after the first.
///
/// Additive smoothing: p(b) = (n(b) + s) / (n + 256 s) and p(b | a) = (n(a b) + s) / (n(a) + 256
/// s), where n(a) counts the places at which a is followed by something. So the loss of an unseen
/// byte is finite. A small s suits a text in which most pairs do not occur, and gives the stronger
/// baseline. Both losses are means over the same bytes.
inline NgramLosses ngram_losses(std::span<std::uint8_t const> training,
                                std::span<std::uint8_t const> validation, double smoothing = 0.05) {
    constexpr std::size_t symbols = Config::vocabulary;
    std::vector<double> single(symbols, 0.0);
    std::vector<double> followed(symbols, 0.0);
    std::vector<double> pairs(symbols * symbols, 0.0);
    for (std::uint8_t const byte : training) {
        single[byte] += 1.0;
    }
    for (std::size_t index = 1; index < training.size(); ++index) {
        followed[training[index - 1]] += 1.0;
        pairs[training[index - 1] * symbols + training[index]] += 1.0;
    }

    double const extra = static_cast<double>(symbols) * smoothing;
    NgramLosses losses;
    for (std::size_t index = 1; index < validation.size(); ++index) {
        std::uint8_t const before = validation[index - 1];
        std::uint8_t const byte = validation[index];
        losses.unigram -=
            std::log((single[byte] + smoothing) / (static_cast<double>(training.size()) + extra));
        losses.bigram -=
            std::log((pairs[before * symbols + byte] + smoothing) / (followed[before] + extra));
    }
    if (validation.size() > 1) {
        losses.unigram /= static_cast<double>(validation.size() - 1);
        losses.bigram /= static_cast<double>(validation.size() - 1);
    }
    return losses;
}

} // namespace gpt
