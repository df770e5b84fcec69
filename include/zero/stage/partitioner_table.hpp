#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/balanced_partitioner.hpp"
#include "../layout/contiguous_partitioner.hpp"
#include "../layout/dealt_group_partitioner.hpp"
#include "../layout/per_tensor_partitioner.hpp"
#include "../layout/round_robin_partitioner.hpp"
#include "../layout/whole_group_partitioner.hpp"
#include "detail/make_partitioner_row.hpp"
#include "partitioner_row.hpp"

#include <array>

namespace ZERO_NAMESPACE {

/// @brief The compatibility of every partitioner of the library; docs/partitioners.md says which
/// one to choose.
inline constexpr std::array<PartitionerRow, 6> partitioner_table{{
    detail::make_partitioner_row<ContiguousPartitioner>("ContiguousPartitioner"),
    detail::make_partitioner_row<PerTensorPartitioner>("PerTensorPartitioner"),
    detail::make_partitioner_row<WholeGroupPartitioner>("WholeGroupPartitioner"),
    detail::make_partitioner_row<DealtGroupPartitioner>("DealtGroupPartitioner"),
    detail::make_partitioner_row<RoundRobinPartitioner>("RoundRobinPartitioner"),
    detail::make_partitioner_row<BalancedPartitioner>("BalancedPartitioner"),
}};

} // namespace ZERO_NAMESPACE
