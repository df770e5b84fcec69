#pragma once

#include "../../core/detail/namespace.hpp"
#include "../bucketer.hpp"
#include "../gather_options.hpp"
#include "../parameter_spec.hpp"
#include "../partitioner.hpp"
#include "../piece.hpp"
#include "partitioner_ref.hpp"
#include "place_in_bucket.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the buckets of a model for `make_layout`: the trainable ones in the order in
/// which they become complete, then the frozen ones. A bucket holds whole parameters of one type.
/// @throws InvalidArgument if the parameters or options are invalid, or a policy breaks its
/// contract
std::vector<BucketPlan> make_buckets(std::span<ParameterSpec const> parameters,
                                     LayoutOptions const& options,
                                     PartitionerRef const& partitioner, BucketerRef bucketer);

/// @brief Returns the buckets of parameters in an adopted block, for `make_adopted_layout`.
/// @param offsets first element of each parameter in the block
/// @throws InvalidArgument if the arguments are invalid, parameters overlap, or the bucketer breaks
/// its contract
std::vector<BucketPlan> make_adopted_buckets(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> offsets,
                                             LayoutOptions const& options, BucketerRef bucketer);

/// @brief Returns one bucket of `pieces` as the partitioner orders and cuts it.
/// @param state points to the `State` of the partitioner
/// @throws InvalidArgument if the partitioner breaks its contract
BucketPlan partition_bucket(std::span<ParameterSpec const> parameters,
                            std::span<Piece const> pieces, std::size_t world,
                            PartitionerRef const& partitioner, void* state);

/// @brief Returns for each parameter a number that grows with the time at which its gradient
/// becomes complete, equal for parameters that become complete with the same unit.
/// @param unit_order as for `ready_order`
std::vector<std::uint64_t> complete_times(std::span<ParameterSpec const> parameters,
                                          std::span<std::size_t const> unit_order);

/// @brief Returns the indices of all parameters in gradient-ready order: the order in which their
/// gradients become complete. O(n log n).
///
/// The gradient of a parameter is complete when the last of its units has finished its backward
/// pass. Parameters that become complete with the same unit stay together, in reverse registration
/// order.
/// @param unit_order the order in which units finish their backward pass; empty: by descending
/// number, as `FlatLayout::unit_order` then says
std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                     std::span<std::size_t const> unit_order);

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

/// @brief Checks the parameters and the options of a layout.
/// @throws InvalidArgument naming the parameter and the remedy
[[gnu::cold]] void validate_parameters(std::span<ParameterSpec const> parameters,
                                       LayoutOptions const& options);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "make_buckets.ipp"
#include "validate_parameters.ipp"
#endif
