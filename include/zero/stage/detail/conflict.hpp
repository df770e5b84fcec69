#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief The reason why a composition of policies is refused, or `none`. `diagnose_stage` has the
/// message of each.
enum class Conflict {
    /// The composition is accepted.
    none,
    /// Stages are 0 to 3.
    no_such_stage,
    /// Stage 3 gathers unit by unit.
    bucket_spans_units,
    /// Stage 3 with shards cut from the whole group: few ranks would send all of a unit.
    units_on_few_ranks,
    /// The partitioner requires its own bucketer, and another one is given.
    bucketer_not_the_partitioners,
    /// Optimizers of whole parameters have no kernels.
    whole_tensor_on_device,
    /// The partitioner cuts parameters, and the optimizer needs whole ones.
    optimizer_needs_whole_tensor,
    /// Only the element-wise update supports a scale per block of states, or stochastic rounding.
    whole_tensor_storage,
    /// Master weights of the parameters' own type.
    master_of_itself,
    /// Master weights of a narrower type than the parameters.
    master_loses_bits,
    /// Only bfloat16 parameters can be completed to float master weights.
    split_of_other,
    /// Float parameters are not rounded.
    rounding_of_float
};

} // namespace ZERO_NAMESPACE::detail
