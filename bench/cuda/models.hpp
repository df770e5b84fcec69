#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

// Tensor sizes of models that have the shape of GPT-2.
namespace zero::bench {

/// Sizes of the tensors, in order of registration.
inline std::vector<std::size_t> gpt2(std::size_t width, std::size_t layers) {
    std::vector<std::size_t> sizes{50257 * width, 1024 * width};
    for (std::size_t layer = 0; layer < layers; ++layer) {
        for (std::size_t const elements :
             {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
              4 * width * width, 4 * width, 4 * width * width, width}) {
            sizes.push_back(elements);
        }
    }
    sizes.insert(sizes.end(), {width, width});
    return sizes;
}

inline std::size_t elements_of(std::vector<std::size_t> const& sizes) {
    std::size_t sum = 0;
    for (std::size_t const size : sizes) {
        sum += size;
    }
    return sum;
}

/// 16 million elements, GPT-2 with 124 million, and with 1.5 billion.
inline std::vector<std::vector<std::size_t>> models() {
    return {gpt2(256, 4), gpt2(768, 12), gpt2(1600, 48)};
}

/// Returns the model with this number of elements.
inline std::vector<std::size_t> model_of(std::size_t elements) {
    for (auto const& sizes : models()) {
        if (elements_of(sizes) == elements) {
            return sizes;
        }
    }
    throw std::invalid_argument("no model has this number of elements");
}

} // namespace zero::bench
