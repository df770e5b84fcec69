#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A piece of a bucket as a `Partitioner` sees it.
struct PartitionItem {
    std::size_t index = 0;    ///< identifies the piece when the partitioner reorders the items
    std::size_t elements = 0; ///< without padding
    std::size_t offset = 0; ///< set by the partitioner: first element in the bucket, a multiple of
                            ///< `granularity`
};

} // namespace ZERO_NAMESPACE
