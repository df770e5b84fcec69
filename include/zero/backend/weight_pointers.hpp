#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Weights that the update reads and writes in one type and rounds to the parameter's.
template <class M, class P>
struct MasterPointers {
    M* master = nullptr;    ///< one for each element of the slice
    P* parameter = nullptr; ///< null: the parameter is its own master
};

/// @brief Weights in parts, as `SplitFloat` describes: the parameter is one of them.
struct SplitPointers {
    bfloat16* parameter = nullptr;      ///< the weight rounded to nearest
    std::uint16_t* remainder = nullptr; ///< the lower 16 bits of what is missing to the weight
    std::uint8_t* rounded_up = nullptr; ///< eight elements to a byte, the first in the lowest bit
};

/// @brief Parameters that are rounded stochastically and are their own masters.
template <class P>
struct StochasticPointers {
    P* parameter = nullptr; ///< read, updated in float, and rounded to either neighbour
    std::uint64_t first_index =
        0;                 ///< of all elements in registration order: counts the random numbers
    std::uint64_t key = 0; ///< of the step; in a table of slices unset, see `UpdateDecision`
};

} // namespace ZERO_NAMESPACE
