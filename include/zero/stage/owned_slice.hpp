#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace zero {

/// @brief The part of one parameter that this rank updates, with its state. Empty spans: there is no such state.
template <class Types, std::size_t States>
struct OwnedSlice {
    std::size_t parameter = 0;
    std::size_t begin = 0; ///< first element, counted inside the parameter
    std::span<typename Types::Parameter> values;
    std::span<typename Types::Master> master;
    std::array<std::span<float>, States> states;
};

} // namespace zero
