#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns how many blocks of 64 elements begin in the slices of a parameter type that this
/// rank holds. Used by `PerBlockBuffer`.
[[gnu::cold]] std::size_t count_placed_blocks(FlatLayout const& layout, std::size_t type,
                                              std::size_t rank, Placement placement);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "count_placed_blocks.ipp"
#endif
