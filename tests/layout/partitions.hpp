#pragma once

// The result of a partitioner as plain lists.

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/cuts.hpp>
#include <zero/layout/detail/partition/place_in_bucket.hpp>
#include <zero/layout/partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>

#include <vector>

namespace zero::test {

using List = std::vector<std::size_t>;

inline List listed(Cuts cuts) {
    List offsets;
    for (std::size_t rank = 0; rank < cuts.size(); ++rank) {
        offsets.push_back(cuts[rank]);
    }
    return offsets;
}

struct Partition {
    List order;
    List offsets;
    List cuts;
};

template <class P>
Partition partition(List const& sizes, std::size_t world, typename P::State& state) {
    std::vector<PartitionItem> items;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        items.push_back({index, sizes[index], 0});
    }
    Partition result;
    result.cuts.assign(world + 1, 12345); // every cut must be written
    P::partition(items, state, result.cuts);
    for (PartitionItem const& item : items) {
        result.order.push_back(item.index);
        result.offsets.push_back(item.offset);
    }
    return result;
}

/// @brief Partitions all buckets of a group, in turn.
template <class P>
std::vector<Partition> partition_group(std::vector<List> const& buckets, std::size_t world) {
    List group;
    for (List const& bucket : buckets) {
        group.insert(group.end(), bucket.begin(), bucket.end());
    }
    auto state = P::begin(group, world);
    std::vector<Partition> results;
    for (List const& bucket : buckets) {
        results.push_back(partition<P>(bucket, world, state));
    }
    return results;
}

} // namespace zero::test
