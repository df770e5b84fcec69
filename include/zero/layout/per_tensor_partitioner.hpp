#pragma once

#include "bucketer.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <span>

namespace zero {

struct PerTensorPartitionerOptions {};

/// @brief Every parameter is split evenly over the ranks: each is a bucket of its own, cut into W equal contiguous shards. O(1) a bucket.
///
/// Every rank holds the same part of every parameter, at the price of one collective and of padding to a multiple of W * 64 elements per
/// parameter. It brings its bucketer; a stage refuses another one.
struct PerTensorPartitioner {
    using policy_category = PartitionerCategory;
    using Options = PerTensorPartitionerOptions;
    using RequiredBucketer = ParameterBucketer;
    struct State {};
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = true;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept { return {}; }
    static void partition(std::span<PartitionItem> items, State& /*state*/, std::span<std::size_t> cuts) {
        detail::cut_evenly(items, cuts);
    }
};
static_assert(Partitioner<PerTensorPartitioner>);

} // namespace zero
