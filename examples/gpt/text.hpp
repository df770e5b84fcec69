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
    /// @throws std::invalid_argument if the text is too short for one sample of `context` tokens
    /// in either part.
    Text(std::string const& bytes, std::size_t context)
        : _bytes(bytes.begin(), bytes.end()), _training_size(_bytes.size() - _bytes.size() / 10) {
        if (training().size() <= context || validation().size() <= context) {
            throw std::invalid_argument(
                "gpt: a text of " + std::to_string(bytes.size())
                + " bytes is too short: its last tenth has " + std::to_string(validation().size())
                + " bytes, and a sample needs " + std::to_string(context + 1));
        }
        if (_bytes.size() > 0xffffffffU) {
            throw std::invalid_argument("gpt: a text of more than 4 GiB is not supported");
        }
    }

    std::span<std::uint8_t const> training() const noexcept {
        return std::span(_bytes).first(_training_size);
    }
    std::span<std::uint8_t const> validation() const noexcept {
        return std::span(_bytes).subspan(_training_size);
    }

private:
    std::vector<std::uint8_t> _bytes;
    std::size_t _training_size;
};

/// @brief Returns the bytes of several files one after another.
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

/// @brief The positions at which the samples of a batch begin in a text. A pure function, so each
/// rank computes its own part, on the host or on a device.
class SamplePositions {
public:
    /// @brief Draws the random samples with the numbers `first_sample`, `first_sample + 1`, ... of
    /// a micro-step.
    ///
    /// A sample is a function of (seed, step, micro-step, its number in the whole batch), so the
    /// union of the parts does not depend on how the batch is divided.
    static constexpr SamplePositions drawn(std::size_t text_size, std::size_t context,
                                           std::uint64_t seed, std::uint64_t step,
                                           std::uint64_t micro_step,
                                           std::size_t first_sample) noexcept {
        return {true, text_size - context, seed, step, micro_step, first_sample};
    }

    /// @brief Samples spread evenly over the text, the same in every call, to measure a loss.
    ///
    /// The text is covered by `batches` calls with `index` 0, 1, ...; samples overlap if there
    /// are more than fit.
    static constexpr SamplePositions spread(std::size_t text_size, std::size_t context,
                                            std::size_t samples, std::size_t index,
                                            std::size_t batches) noexcept {
        std::size_t const count = batches * samples - 1;
        return {false, text_size - context - 1, count == 0 ? 1 : count, 0, 0, index * samples};
    }

    ZERO_HOST_DEVICE constexpr std::size_t operator()(std::size_t sample) const noexcept {
        return _is_random
                   ? random_below(_range, {_seed_or_count, _step, _micro_step, _first + sample})
                   : _range * (_first + sample) / _seed_or_count;
    }

private:
    constexpr SamplePositions(bool is_random, std::size_t range, std::uint64_t seed_or_count,
                              std::uint64_t step, std::uint64_t micro_step,
                              std::size_t first) noexcept
        : _range(range), _seed_or_count(seed_or_count), _step(step), _micro_step(micro_step),
          _first(first), _is_random(is_random) {}

    std::size_t _range;
    std::uint64_t _seed_or_count;
    std::uint64_t _step;
    std::uint64_t _micro_step;
    std::size_t _first;
    bool _is_random;
};

/// @brief Inputs and targets of a batch: each target is the byte that follows its input.
class Batch {
public:
    Batch(std::size_t samples, std::size_t context)
        : _context(context), _tokens(samples * context), _targets(samples * context) {}

    std::size_t samples() const noexcept { return _tokens.size() / _context; }
    std::span<std::uint8_t const> tokens() const noexcept { return _tokens; }
    std::span<std::uint8_t const> targets() const noexcept { return _targets; }

    void fill(std::span<std::uint8_t const> text, SamplePositions const& positions) {
        for (std::size_t sample = 0; sample < samples(); ++sample) {
            auto const from = text.subspan(positions(sample), _context + 1);
            auto const offset = static_cast<std::ptrdiff_t>(sample * _context);
            std::copy(from.begin(), from.end() - 1, _tokens.begin() + offset);
            std::copy(from.begin() + 1, from.end(), _targets.begin() + offset);
        }
    }

private:
    std::size_t _context;
    std::vector<std::uint8_t> _tokens;
    std::vector<std::uint8_t> _targets;
};

} // namespace gpt
