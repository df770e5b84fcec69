#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief Cuts the whole flat group, in gradient-ready order, into W equal contiguous shards,
/// regardless of the boundaries of buckets and parameters. O(items + W) per bucket.
///
/// This is the classical cut of stages 1 and 2 (ZeRO, section 5, as DeepSpeed implements it). Each
/// rank holds one contiguous range of the model, and the group is padded once, in its last bucket.
/// A bucket has unequal extents of a few owners, so it takes the grouped collectives, in which only
/// few ranks receive at a time. It does not serve stage 3, where a unit would be on few ranks.
struct WholeGroupPartitioner {
    using policy_category = PartitionerCategory;
    struct State {
        std::size_t shard = 0;      ///< elements of the group on each rank, padding included
        std::size_t items_left = 0; ///< parameters in the remaining buckets
        std::size_t position = 0;   ///< first element of the next bucket in the group
    };
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = true;
    static constexpr bool is_even = false;

    static State begin(std::span<std::size_t const> elements, std::size_t world) noexcept;
    static void partition(std::span<PartitionItem> items, State& state,
                          std::span<std::size_t> cuts);
};
static_assert(Partitioner<WholeGroupPartitioner>);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/whole_group_partitioner.ipp"
#endif
