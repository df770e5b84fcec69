#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A contiguous part of a parameter inside a bucket. Usually the whole parameter; in an
/// adopted block a bucket may hold a part of it.
struct Piece {
    std::size_t parameter = 0;       ///< index of the parameter
    std::size_t parameter_begin = 0; ///< first element in the parameter
    std::size_t bucket_begin = 0;    ///< first element in the bucket
    std::size_t elements = 0;        ///< length of the piece
};

} // namespace ZERO_NAMESPACE
