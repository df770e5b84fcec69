#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Returns the offset of each bucket's extent in the shard of a rank, then the size of the
/// shard. O(buckets).
///
/// A shard holds the extents of one rank one after the other, in bucket order. Buckets of other
/// types have length 0. Every sharded state is stored in this order.
std::vector<std::size_t> shard_begins(FlatLayout const& layout, std::size_t rank,
                                      std::size_t type = 0);

/// @brief Returns the offset of each bucket in a replicated state, which holds whole buckets, then
/// the size of the state. O(buckets).
std::vector<std::size_t> replica_begins(FlatLayout const& layout, std::size_t type = 0);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/shard_begins.ipp"
#endif
