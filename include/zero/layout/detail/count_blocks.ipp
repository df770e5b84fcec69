#pragma once

#include "../padding.hpp"
#include "../piece.hpp"
#include "count_blocks.hpp"

namespace ZERO_NAMESPACE::detail {

/// Returns whether it is known, without a look at every cut, that no cut divides a block of a
/// piece. False for uneven cuts, and for a piece of an adopted block that does not start at a
/// multiple of `granularity`.
ZERO_COLD_INLINE bool is_cut_between_blocks(FlatLayout const& layout, std::size_t bucket) {
    Cuts const cuts = layout.cuts(bucket);
    bool is = cuts.is_even() && cuts[1] % granularity == 0;
    for (Piece const& piece : layout.pieces(bucket)) {
        is = is && piece.bucket_begin % granularity == 0;
    }
    return is;
}

ZERO_COLD_INLINE std::size_t count_blocks(FlatLayout const& layout, std::size_t bucket,
                                          std::size_t rank, Placement placement) {
    std::size_t sum = 0;
    auto const add = [&](Piece const& slice) { sum += blocks_of(slice.elements); };
    if (placement == Placement::replicated && is_cut_between_blocks(layout, bucket)) {
        for (Piece const& piece : layout.pieces(bucket)) {
            add(piece);
        }
    } else if (placement == Placement::replicated) {
        layout.for_slices_of_all_ranks(bucket, add);
    } else {
        layout.for_slices(bucket, layout.extent(bucket, rank), add);
    }
    return sum;
}

} // namespace ZERO_NAMESPACE::detail
