#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "bucket_plan.hpp"
#include "bucketer.hpp"
#include "detail/make_buckets.hpp"
#include "detail/ready_order.hpp"
#include "detail/validate_parameters.hpp"
#include "flat_layout.hpp"
#include "layout_options.hpp"
#include "parameter_spec.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The geometry for parameters whose memory the engine owns, or that are scattered over the
/// caller's memory.
/// @param bucketing by value: g++ 12 takes a reference to options without members for a use of
/// uninitialised memory
/// @throws InvalidArgument, see `validate`.
template <class Partitioner, class Bucketer>
FlatLayout make_layout(std::vector<ParameterSpec> parameters, LayoutOptions const& options,
                       typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    auto const specs = detail::as_span(parameters);
    detail::validate_parameters(specs, options);
    Bucketer::validate(bucketing);
    std::vector<BucketPlan> buckets;
    for (bool const trainable : {true, false}) {
        std::vector<BucketPlan> found;
        for (std::size_t type = 0; type < options.types(); ++type) {
            for (BucketPlan& bucket : detail::make_buckets<Partitioner, Bucketer>(
                     specs, {trainable, type}, options, bucketing)) {
                found.push_back(std::move(bucket));
            }
        }
        if (options.types() > 1) {
            found = detail::merge_by_readiness(
                found, detail::parameters_in_ready_order(parameters, options.unit_order));
        }
        for (BucketPlan& bucket : found) {
            buckets.push_back(std::move(bucket));
        }
    }
    return {std::move(parameters), options.world, std::move(buckets), options.unit_order};
}

} // namespace ZERO_NAMESPACE
