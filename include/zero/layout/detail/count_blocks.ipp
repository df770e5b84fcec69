#pragma once

#include "../padding.hpp"
#include "../piece.hpp"
#include "count_blocks.hpp"

namespace ZERO_NAMESPACE::detail {

/// Whether no cut divides a block of a piece. Always so unless a piece of an adopted block starts
/// anywhere; false if that cannot be told without a look at every cut.
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
