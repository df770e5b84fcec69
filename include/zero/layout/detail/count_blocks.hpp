#pragma once

#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../padding.hpp"
#include "../placement.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Elements that share a scale or a word of bits in states with per-block data.
inline constexpr std::size_t block_elements = granularity;

/// @brief Returns the number of blocks in a slice; the last one may be shorter.
constexpr std::size_t blocks_of(std::size_t elements) noexcept {
    return (elements + block_elements - 1) / block_elements;
}

/// @brief Returns the number of blocks in the slices of a bucket: in this rank's extent if sharded,
/// in all extents if replicated.
std::size_t count_blocks(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                         Placement placement);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "count_blocks.ipp"
#endif
