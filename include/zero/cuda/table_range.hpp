#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/kernels/chunk.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief Consecutive slices of a `SliceTable`, as kernels take them: one thread block processes
/// one chunk, or several. Owns nothing.
template <class Slice>
struct TableRange {
    Slice const* slices = nullptr;         ///< all slices of the table, in device memory
    detail::Chunk const* chunks = nullptr; ///< chunks of these slices, in device memory
    std::size_t count = 0;                 ///< number of chunks
    int multiprocessors = 1;               ///< number in the device
    Slice const* host_slices = nullptr;    ///< these slices, in host memory
    std::size_t host_count = 0;            ///< number of these slices
};

} // namespace ZERO_NAMESPACE::cuda
