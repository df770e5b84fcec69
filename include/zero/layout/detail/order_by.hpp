#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the indices of `keys` in ascending order of key. Stable; O(n log n).
///
/// A merge sort, written out because `<algorithm>` takes longer to compile than this whole layer.
std::vector<std::size_t> order_by(std::span<std::uint64_t const> keys);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "order_by.ipp"
#endif
