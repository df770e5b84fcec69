#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "bucketer.hpp"
#include "detail/partition/make_buckets.hpp"
#include "detail/partition/partitioner_ref.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "parameter_spec.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Returns the layout of parameters in memory of the engine, or scattered in memory of the
/// caller. For an adopted block see `make_adopted_layout`.
/// @param bucketing passed by value, because g++ 12 warns about uninitialised memory when options
/// without members are passed by reference
/// @param partitioning options of the partitioner, likewise
/// @throws InvalidArgument naming the parameter or option and the remedy
template <class Partitioner, class Bucketer>
FlatLayout make_layout(std::vector<ParameterSpec> parameters, LayoutOptions const& options,
                       typename Bucketer::Options bucketing = typename Bucketer::Options(),
                       detail::partitioner_options_t<Partitioner> partitioning = {}) {
    std::vector<BucketPlan> buckets = detail::make_buckets(
        detail::as_span(parameters), options, detail::partitioner_ref<Partitioner>(&partitioning),
        detail::bucketer_ref<Bucketer>(bucketing));
    return {std::move(parameters), options.world, std::move(buckets), options.unit_order};
}

/// @brief Returns the layout of parameters in an adopted block: one contiguous block of the
/// caller's memory, which is communicated in place.
///
/// Bucket boundaries are multiples of W * 64 elements from the start of the block, so they fall
/// inside parameters; none is past the end of the block. Where adjacent trainable parameters
/// begin or end between two such multiples, the remaining elements go into one small staged bucket,
/// which is communicated through a copy. Frozen parameters stay where they are and have no bucket.
/// The cut is always even and contiguous.
/// @param offsets first element of each parameter, counted from the start of the block
/// @throws InvalidArgument naming the parameter or option and the remedy; also if two parameters
/// overlap, or if `options.unit_order` is given, because it cannot be followed
template <class Bucketer>
FlatLayout
make_adopted_layout(std::vector<ParameterSpec> parameters, std::span<std::size_t const> offsets,
                    LayoutOptions const& options,
                    typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    std::vector<BucketPlan> buckets = detail::make_adopted_buckets(
        detail::as_span(parameters), offsets, options, detail::bucketer_ref<Bucketer>(bucketing));
    return {std::move(parameters), options.world, std::move(buckets)};
}

} // namespace ZERO_NAMESPACE
