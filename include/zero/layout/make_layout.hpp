#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "bucket_plan.hpp"
#include "bucketer.hpp"
#include "detail/bucketer_ref.hpp"
#include "detail/make_buckets.hpp"
#include "detail/partitioner_ref.hpp"
#include "flat_layout.hpp"
#include "layout_options.hpp"
#include "parameter_spec.hpp"
#include "partitioner.hpp"

#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Returns the layout of parameters in memory of the engine, or scattered in memory of the
/// caller. For an adopted block see `make_adopted_layout`.
/// @param bucketing passed by value, because g++ 12 warns about uninitialised memory when options
/// without members are passed by reference
/// @throws InvalidArgument naming the parameter or option and the remedy
template <class Partitioner, class Bucketer>
FlatLayout make_layout(std::vector<ParameterSpec> parameters, LayoutOptions const& options,
                       typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    std::vector<BucketPlan> buckets = detail::make_buckets(
        detail::as_span(parameters), options, detail::partitioner_ref<Partitioner>(),
        detail::bucketer_ref<Bucketer>(bucketing));
    return {std::move(parameters), options.world, std::move(buckets), options.unit_order};
}

} // namespace ZERO_NAMESPACE
