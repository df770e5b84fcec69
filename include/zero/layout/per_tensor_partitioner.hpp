#pragma once

#include "../core/detail/namespace.hpp"
#include "contiguous_partitioner.hpp"
#include "parameter_bucketer.hpp"
#include "partitioner.hpp"

namespace ZERO_NAMESPACE {

struct PerTensorPartitionerOptions {};

/// @brief Every parameter is split evenly over the ranks: each is a bucket of its own, cut into W
/// equal contiguous shards. O(1) a bucket.
///
/// Every rank holds the same part of every parameter, at the price of one collective and of padding
/// to a multiple of W * 64 elements per parameter. It brings its bucketer; a stage refuses another
/// one.
struct PerTensorPartitioner : ContiguousPartitioner {
    using Options = PerTensorPartitionerOptions;
    using RequiredBucketer = ParameterBucketer; ///< a stage takes it and no other
};
static_assert(Partitioner<PerTensorPartitioner>);

} // namespace ZERO_NAMESPACE
