#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "padding.hpp"
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

    [[gnu::cold]] static State begin(std::span<std::size_t const> elements,
                                     std::size_t world) noexcept {
        std::size_t sum = 0;
        for (std::size_t const size : elements) {
            sum += padded_size(size);
        }
        return {even_extent(sum, world), elements.size(), 0};
    }

    [[gnu::cold]] static void partition(std::span<PartitionItem> items, State& state,
                                        std::span<std::size_t> cuts) {
        std::size_t const world = cuts.size() - 1;
        std::size_t end = state.position + detail::place_in_order(items);
        state.items_left -= items.size();
        if (state.items_left == 0) {
            end = world * state.shard;
        }
        for (std::size_t rank = 0; rank <= world; ++rank) {
            cuts[rank] = detail::larger(state.position, detail::smaller(rank * state.shard, end))
                         - state.position;
        }
        state.position = end;
    }
};
static_assert(Partitioner<WholeGroupPartitioner>);

} // namespace ZERO_NAMESPACE
