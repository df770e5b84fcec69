#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief How much of a slice one thread block is given: whole leaves of the exact sum and whole
/// blocks of scaled states.
inline constexpr std::size_t chunk_elements = 8192;

/// @brief The work of one thread block: part `index` of a slice.
struct Chunk {
    std::uint32_t slice; ///< number of the slice in the whole table
    std::uint32_t index; ///< of the part: elements from index * chunk_elements on, at most so many
};

} // namespace ZERO_NAMESPACE::cuda::detail
