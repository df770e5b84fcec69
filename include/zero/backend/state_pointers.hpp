#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

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

/// @brief Pointers to states in 16 bits that are rounded stochastically.
/// @tparam Pointers `StatePointers` or `ScaledStatePointers`
template <class Pointers>
struct StochasticStates : Pointers {
    std::uint64_t first_index = 0; ///< index of the first element in registration order: the
                                   ///< counter of its random numbers
    std::uint64_t key = 0;         ///< key of the step; unset in a table of slices, see `decided`
};

} // namespace ZERO_NAMESPACE
