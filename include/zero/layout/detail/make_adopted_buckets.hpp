#pragma once

#include "../../core/detail/namespace.hpp"
#include "../bucket_plan.hpp"
#include "../layout_options.hpp"
#include "../parameter_spec.hpp"
#include "bucketer_ref.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the buckets of parameters in an adopted block, for `make_adopted_layout`.
/// @param offsets first element of each parameter in the block
/// @throws InvalidArgument if the arguments are invalid, parameters overlap, or the bucketer breaks
/// its contract
std::vector<BucketPlan> make_adopted_buckets(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> offsets,
                                             LayoutOptions const& options, BucketerRef bucketer);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "make_adopted_buckets.ipp"
#endif
