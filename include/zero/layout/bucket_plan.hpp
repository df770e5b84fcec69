#pragma once

#include "../core/detail/namespace.hpp"
#include "piece.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief How a bucket is laid out, before the layout indexes it: what the functions in
/// `make_layout.hpp` produce.
struct BucketPlan {
    std::vector<Piece> pieces;     ///< sorted by bucket_begin, disjoint
    std::vector<std::size_t> cuts; ///< W + 1 monotone offsets; rank r owns [cuts[r], cuts[r + 1])
    bool trainable = true;         ///< frozen ones are never reduced and never updated
    std::size_t type = 0;          ///< of all its parameters
    bool is_staged = false; ///< its parameters do not lie contiguously in the caller's memory: it
                            ///< is communicated through a copy
    std::size_t block_begin = 0; ///< where it lies in an adopted block, when it is not staged
};

} // namespace ZERO_NAMESPACE
