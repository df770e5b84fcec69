#pragma once

#include <zero/layout/parameter_spec.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {

inline constexpr std::array<std::size_t, 7> scaling_worlds{1, 2, 4, 8, 16, 32, 64};

/// A power of two near the capacity of a bucket at the default cap of 25 MiB with 16 bits.
inline constexpr std::size_t scaling_bucket_elements = std::size_t{1} << 23U;

/// Returns a model of `elements` elements: a power of two from 2^20 on, or any larger multiple of
/// 2^20. It has 16 units of equal tensors of at most a million elements. For a plan tensors are
/// larger, since time and memory of a layout grow with their number.
inline std::vector<zero::ParameterSpec> scaling_model(std::size_t elements,
                                                      std::size_t most_tensors = 1024) {
    constexpr std::size_t units = 16;
    std::size_t const tensors = std::clamp(elements >> 20U, units, most_tensors);
    std::vector<zero::ParameterSpec> model;
    for (std::size_t index = 0; index < tensors; ++index) {
        model.push_back({.name = "tensor " + std::to_string(index),
                         .elements = elements / tensors,
                         .units = {index * units / tensors}});
    }
    return model;
}

} // namespace bench
