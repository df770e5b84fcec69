#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Non-owning pointers to the optimizer states of a slice, one array per state.
template <std::size_t States, class S>
struct StatePointers {
    using Type = S;                  ///< storage type of a state
    std::array<S*, States> states{}; ///< one array per state, as long as the slice
};

/// @brief Pointers to float16 states with one scale per block of 64. Blocks are counted from the
/// start of the slice.
template <std::size_t States>
struct ScaledStatePointers : StatePointers<States, float16> {
    std::array<float*, States> scales{}; ///< one array per state, with one scale per started block
};

} // namespace ZERO_NAMESPACE
