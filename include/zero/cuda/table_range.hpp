#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/chunk.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief Some consecutive slices of a table, as a kernel takes them: one chunk of theirs per
/// block, or several.
template <class Slice>
struct TableRange {
    Slice const* slices = nullptr;         ///< of the whole table
    detail::Chunk const* chunks = nullptr; ///< of these slices
    std::size_t count = 0;                 ///< of chunks
    int multiprocessors = 1;               ///< of the device
};

} // namespace ZERO_NAMESPACE::cuda
