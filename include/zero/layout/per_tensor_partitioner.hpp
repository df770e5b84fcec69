#pragma once

#include "../core/detail/namespace.hpp"
#include "contiguous_partitioner.hpp"
#include "partitioner.hpp"
#include "size_capped_bucketer.hpp"

namespace ZERO_NAMESPACE {

/// @brief Cuts every parameter into W equal contiguous extents. Each parameter is a bucket of its
/// own. O(1) per bucket.
///
/// Every rank holds the same range of every parameter. The cost is one collective per parameter,
/// and padding of each parameter to a multiple of W * 64 elements. A stage uses its
/// `RequiredBucketer` and rejects any other.
struct PerTensorPartitioner : ContiguousPartitioner {
    using RequiredBucketer = ParameterBucketer; ///< the only bucketer that a stage accepts with it
};
static_assert(Partitioner<PerTensorPartitioner>);

} // namespace ZERO_NAMESPACE
