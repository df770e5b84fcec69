#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <cstdint>

/// @file
/// @brief Non-owning pointers to the weights of a slice, one type per `MasterForm`.

namespace ZERO_NAMESPACE {

/// @brief Weights that the update reads and writes in type M and rounds to the parameter type P.
template <class M, class P>
struct MasterPointers {
    M* master = nullptr;    ///< master weights, one per element of the slice
    P* parameter = nullptr; ///< null if the parameter is its own master
};

/// @brief Weights that are split as in `SplitFloat`. The parameter is the upper half.
struct SplitPointers {
    bfloat16* parameter = nullptr;      ///< the weight, rounded to nearest
    std::uint16_t* remainder = nullptr; ///< lower 16 bits of weight minus parameter, as integers
    std::uint8_t* rounded_up = nullptr; ///< one bit per element, the first in the lowest bit
};

/// @brief Parameters that are their own masters and are rounded stochastically.
template <class P>
struct StochasticPointers {
    P* parameter = nullptr;        ///< read, updated in float, and rounded to either neighbour
    std::uint64_t first_index = 0; ///< index of the first element in registration order: the
                                   ///< counter of its random number
    std::uint64_t key = 0;         ///< key of the step; unset in a table of slices, see `decided`
};

} // namespace ZERO_NAMESPACE
