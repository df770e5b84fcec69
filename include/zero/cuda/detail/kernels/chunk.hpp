#pragma once

#include "../../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Elements of a slice that one thread block processes: a whole number of blocks of scaled
/// states.
inline constexpr std::size_t chunk_elements = 8192;

/// @brief The work of one thread block: elements [index * chunk_elements, (index + 1) *
/// chunk_elements) of a slice, or fewer at its end. `SliceTable` makes them, kernels read them.
struct Chunk {
    std::uint32_t slice; ///< index in the whole table
    std::uint32_t index; ///< index of the chunk in its slice
};

} // namespace ZERO_NAMESPACE::cuda::detail
