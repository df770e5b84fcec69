#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/contiguous_partitioner.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the partitioner can be used with an adopted block. Its layout always cuts buckets
/// as ContiguousPartitioner does, so any other partitioner would be ignored.
template <class Partitioner>
inline constexpr bool serves_adopted_block = std::is_same_v<Partitioner, ContiguousPartitioner>;

} // namespace ZERO_NAMESPACE::detail
