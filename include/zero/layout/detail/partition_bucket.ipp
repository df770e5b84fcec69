#pragma once

#include "../../core/detail/light_std.hpp"
#include "../padding.hpp"
#include "../partition_item.hpp"
#include "partition_bucket.hpp"
#include "place_in_bucket.hpp"
#include "require_partition.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE BucketPlan partition_bucket(std::span<ParameterSpec const> parameters,
                                             std::span<Piece const> pieces, std::size_t world,
                                             PartitionerRef const& partitioner, void* state) {
    List<PartitionItem> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        items.push_back({index, pieces[index].elements, 0});
    }
    BucketPlan bucket;
    std::span<PartitionItem> const placed(items.data(), items.size());
    // Takes O(items) for any W. A partitioner that claims to cut no parameter is checked below
    // instead.
    if (partitioner.is_contiguous && partitioner.cuts_parameters) {
        bucket.extent = even_extent(place_in_order(placed), world);
    } else {
        bucket.cuts.resize(world + 1);
        partitioner.partition(placed, state, bucket.cuts);
        require_partition(parameters, pieces, as_span(items), bucket.cuts, partitioner);
        if (partitioner.is_even) {
            bucket.extent = bucket.cuts[1];
            bucket.cuts = {};
        }
    }
    bucket.pieces.reserve(items.size());
    for (PartitionItem const& item : items) {
        bucket.pieces.push_back(pieces[item.index]);
        bucket.pieces.back().bucket_begin = item.offset;
    }
    return bucket;
}

} // namespace ZERO_NAMESPACE::detail
