#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/contiguous_partitioner.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the partitioner can cut caller-owned memory. There buckets are cut in place, so
/// any other partitioner would be ignored.
template <class Partitioner>
inline constexpr bool serves_adopted_block = std::is_same_v<Partitioner, ContiguousPartitioner>;

} // namespace ZERO_NAMESPACE::detail
