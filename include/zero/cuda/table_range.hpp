#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/chunk.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief Consecutive slices of a `SliceTable`, as kernels take them: one thread block processes
/// one chunk, or several. Owns nothing.
template <class Slice>
struct TableRange {
    Slice const* slices = nullptr;         ///< in device memory, of the whole table
    detail::Chunk const* chunks = nullptr; ///< in device memory, of these slices alone
    std::size_t count = 0;                 ///< number of chunks
    int multiprocessors = 1;               ///< multiprocessors of the device
};

} // namespace ZERO_NAMESPACE::cuda
