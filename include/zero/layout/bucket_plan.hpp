#pragma once

#include "../core/detail/namespace.hpp"
#include "piece.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One bucket of a layout: its pieces, and its cut into one extent per rank. `make_layout`
/// and `make_adopted_layout` produce it, and `FlatLayout` owns and indexes it.
struct BucketPlan {
    std::vector<Piece> pieces;     ///< disjoint, in ascending order of bucket_begin
    std::vector<std::size_t> cuts; ///< W + 1 ascending offsets; rank r owns [cuts[r], cuts[r + 1]);
                                   ///< empty: every rank owns `extent` elements
    bool trainable = true;         ///< false: never reduced and never updated
    std::size_t type = 0;          ///< index of the type of all its parameters
    bool is_staged = false;        ///< communicated through a copy, because its pieces are not
                                   ///< contiguous in the adopted block
    std::size_t block_begin = 0;   ///< first element in the adopted block, unless it is staged
    std::size_t extent = 0;        ///< elements per rank if cuts is empty
    bool is_persistent = false;    ///< stays gathered between uses (`GatherOptions`)
};

} // namespace ZERO_NAMESPACE
