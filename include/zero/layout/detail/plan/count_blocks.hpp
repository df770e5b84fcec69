#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../flat_layout.hpp"
#include "../../padding.hpp"
#include "../../piece.hpp"
#include "../../stage_table.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Elements that share a scale or a word of bits in states with per-block data.
inline constexpr std::size_t block_elements = granularity;

/// @brief Returns the number of blocks in a slice; the last one may be shorter.
constexpr std::size_t blocks_of(std::size_t elements) noexcept {
    return (elements + block_elements - 1) / block_elements;
}

/// Returns whether no cut can divide a block of a piece, decided without reading every cut. False
/// for uneven cuts, and for a piece of an adopted block that does not start at a multiple of
/// `granularity`.
[[gnu::cold]] inline bool is_cut_between_blocks(FlatLayout const& layout, std::size_t bucket) {
    Cuts const cuts = layout.cuts(bucket);
    bool is = cuts.is_even() && cuts[1] % granularity == 0;
    for (Piece const& piece : layout.pieces(bucket)) {
        is = is && piece.bucket_begin % granularity == 0;
    }
    return is;
}

/// @brief Returns the number of blocks in the slices of a bucket: in this rank's extent if sharded,
/// in all extents if replicated.
[[gnu::cold]] inline std::size_t count_blocks(FlatLayout const& layout, std::size_t bucket,
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
