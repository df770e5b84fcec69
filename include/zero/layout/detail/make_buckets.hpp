#pragma once

#include "../../core/detail/namespace.hpp"
#include "../bucket_plan.hpp"
#include "../layout_options.hpp"
#include "../parameter_spec.hpp"
#include "bucketer_ref.hpp"
#include "partitioner_ref.hpp"

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

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "make_buckets.ipp"
#endif
