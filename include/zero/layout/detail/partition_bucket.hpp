#pragma once

#include "../../core/detail/namespace.hpp"
#include "../bucket_plan.hpp"
#include "../parameter_spec.hpp"
#include "../piece.hpp"
#include "partitioner_ref.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns one bucket of `pieces` as the partitioner orders and cuts it.
/// @param state points to the `State` of the partitioner
/// @throws InvalidArgument if the partitioner breaks its contract
BucketPlan partition_bucket(std::span<ParameterSpec const> parameters,
                            std::span<Piece const> pieces, std::size_t world,
                            PartitionerRef const& partitioner, void* state);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "partition_bucket.ipp"
#endif
