#pragma once

#include "../../core/detail/namespace.hpp"
#include "../parameter_spec.hpp"
#include "../partition_item.hpp"
#include "../piece.hpp"
#include "partitioner_ref.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Checks that a partitioner kept the contract of `Partitioner` for one bucket.
///
/// A partitioner that breaks it would change the results of the training, or make the engine write
/// outside its buffers. O(items log(items) + W), once per bucket.
/// @param pieces the pieces of the bucket, in the order in which the partitioner got them
/// @throws InvalidArgument naming the parameter
[[gnu::cold]] void require_partition(std::span<ParameterSpec const> parameters,
                                     std::span<Piece const> pieces,
                                     std::span<PartitionItem const> items,
                                     std::span<std::size_t const> cuts,
                                     PartitionerRef const& partitioner);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "require_partition.ipp"
#endif
