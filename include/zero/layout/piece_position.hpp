#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The position of a piece: `layout.pieces(bucket)[index]`. `FlatLayout` lists the
/// positions, so nothing searches a bucket.
struct PiecePosition {
    std::size_t bucket = 0; ///< the bucket that holds the piece
    std::size_t index = 0;  ///< index of the piece in the bucket
};

} // namespace ZERO_NAMESPACE
