#pragma once

#include "config.hpp"
#include "random.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

/// @brief A text as bytes, the last tenth held out for validation.
class Text {
public:
    /// @throws std::invalid_argument when the text is too short for one sample of `context` tokens in either part.
    Text(std::string const& bytes, std::size_t context)
        : _bytes(bytes.begin(), bytes.end()), _training_size(_bytes.size() - _bytes.size() / 10) {
        if (training().size() <= context || validation().size() <= context) {
            throw std::invalid_argument("gpt: a text of " + std::to_string(bytes.size()) + " bytes is too short: its last tenth has " +
                                        std::to_string(validation().size()) + " bytes, and a sample needs " +
                                        std::to_string(context + 1));
        }
        if (_bytes.size() > 0xffffffffU) {
            throw std::invalid_argument("gpt: a text of more than 4 GiB is not supported");
        }
    }

    std::span<std::uint8_t const> training() const noexcept { return std::span(_bytes).first(_training_size); }
    std::span<std::uint8_t const> validation() const noexcept { return std::span(_bytes).subspan(_training_size); }

private:
    std::vector<std::uint8_t> _bytes;
    std::size_t _training_size;
};

/// @brief The bytes of several files one after another.
/// @throws std::runtime_error naming a file that cannot be read.
inline std::string read_files(std::span<std::string const> paths) {
    std::string bytes;
    for (std::string const& path : paths) {
        std::ifstream file(path, std::ios::binary);
        bytes.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        if (!file) {
            throw std::runtime_error("gpt: cannot read the file " + path);
        }
    }
    return bytes;
}

/// @brief Inputs and targets of a batch: each target is the byte that follows its input.
class Batch {
public:
    Batch(std::size_t samples, std::size_t context) : _context(context), _tokens(samples * context), _targets(samples * context) {}

    std::size_t samples() const noexcept { return _tokens.size() / _context; }
    std::span<std::uint8_t const> tokens() const noexcept { return _tokens; }
    std::span<std::uint8_t const> targets() const noexcept { return _targets; }

    /// @brief Sets one sample to the text that begins at `position`; `position + context` must be inside the text.
    void set(std::size_t sample, std::span<std::uint8_t const> text, std::size_t position) {
        auto const from = text.subspan(position, _context + 1);
        auto const offset = static_cast<std::ptrdiff_t>(sample * _context);
        std::copy(from.begin(), from.end() - 1, _tokens.begin() + offset);
        std::copy(from.begin() + 1, from.end(), _targets.begin() + offset);
    }

    /// @brief Fills the batch with random samples number `first_sample`, `first_sample + 1`, ... of a micro-step.
    ///
    /// A sample is a function of (seed, step, micro-step, its number in the whole batch): whoever works on a part of the batch
    /// draws that part, and the union of the parts is the same however the batch is divided.
    void draw(std::span<std::uint8_t const> text, std::uint64_t seed, std::uint64_t step, std::uint64_t micro_step,
              std::size_t first_sample) {
        for (std::size_t sample = 0; sample < samples(); ++sample) {
            set(sample, text, random_below(text.size() - _context, {seed, step, micro_step, first_sample + sample}));
        }
    }

    /// @brief Fills the batch with samples spread evenly over the text, the same in every call: to measure a loss.
    ///
    /// The text is covered by `batches` calls with `index` 0, 1, ...; samples overlap when there are more than fit.
    void spread(std::span<std::uint8_t const> text, std::size_t index, std::size_t batches) {
        std::size_t const last_position = text.size() - _context - 1;
        std::size_t const count = std::max<std::size_t>(batches * samples() - 1, 1);
        for (std::size_t sample = 0; sample < samples(); ++sample) {
            set(sample, text, last_position * (index * samples() + sample) / count);
        }
    }

private:
    std::size_t _context;
    std::vector<std::uint8_t> _tokens;
    std::vector<std::uint8_t> _targets;
};

} // namespace gpt
