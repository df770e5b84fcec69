#pragma once

#include "../piece.hpp"
#include "count_blocks.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::size_t count_blocks(FlatLayout const& layout, std::size_t bucket,
                                          std::size_t rank, Placement placement) {
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
