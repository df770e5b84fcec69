#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The states of an optimizer, one array each.
template <std::size_t States, class S>
struct StatePointers {
    using Type = S; ///< what a state is stored in
    std::array<S*, States>
        states{}; ///< one pointer for each state, to as many elements as the slice has
};

/// @brief float16 states with a scale per block of 64, counted from the start of the slice.
template <std::size_t States>
struct ScaledStatePointers : StatePointers<States, float16> {
    std::array<float*, States>
        scales{}; ///< one pointer for each state, to a scale for each started block
};

} // namespace ZERO_NAMESPACE
