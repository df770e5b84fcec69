#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A contiguous part of one parameter inside one bucket. Usually the whole parameter;
/// adopted blocks are cut anywhere.
struct Piece {
    std::size_t parameter = 0;       ///< number of registration
    std::size_t parameter_begin = 0; ///< first element, counted inside the parameter
    std::size_t bucket_begin = 0;    ///< first element, counted inside the bucket
    std::size_t elements = 0;        ///< of the part
};

} // namespace ZERO_NAMESPACE
