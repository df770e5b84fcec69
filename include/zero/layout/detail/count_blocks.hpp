#pragma once

#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../padding.hpp"
#include "../piece.hpp"
#include "../placement.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

inline constexpr std::size_t block_elements =
    granularity; ///< elements that share a scale, or a word of bits

/// @brief Blocks that a slice of this many elements starts.
constexpr std::size_t blocks_of(std::size_t elements) noexcept {
    return (elements + block_elements - 1) / block_elements;
}

/// @brief Blocks that the slices in this rank's extent of a bucket start, or those of all ranks.
inline std::size_t count_blocks(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                                Placement placement) {
    std::size_t sum = 0;
    auto const add = [&](Piece const& slice) { sum += blocks_of(slice.elements); };
    if (placement == Placement::replicated) {
        layout.for_slices_of_all_ranks(bucket, add);
    } else {
        layout.for_slices(bucket, layout.extent(bucket, rank), add);
    }
    return sum;
}

} // namespace ZERO_NAMESPACE::detail
