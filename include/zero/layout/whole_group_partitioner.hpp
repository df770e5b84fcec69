#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/place_in_bucket.hpp"
#include "padding.hpp"
#include "partitioner.hpp"
#include "range.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

struct WholeGroupPartitionerOptions {};

/// @brief The whole flat group, in gradient-ready order, is cut into W equal contiguous shards,
/// whatever the buckets. O(items + W) a bucket.
///
/// The classical cut of stages 1 and 2 (ZeRO, section 5, as DeepSpeed has it): a rank holds one
/// contiguous part of the model, and the group is padded once, in its last bucket. A bucket then
/// covers unequal shares of a few owners, so it takes the grouped collectives, in which few ranks
/// receive at a time. Not for stage 3, where a unit would lie on few ranks.
struct WholeGroupPartitioner {
    using policy_category = PartitionerCategory;
    using Options = WholeGroupPartitionerOptions;
    struct State {
        std::size_t shard = 0;      ///< elements of each rank's part of the group
        std::size_t items_left = 0; ///< with none left, the bucket is the last
        std::size_t position = 0;   ///< where in the group the next bucket begins
    };
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = true;
    static constexpr bool is_even = false;

    static State begin(std::span<std::size_t const> elements, std::size_t world) noexcept {
        std::size_t sum = 0;
        for (std::size_t const size : elements) {
            sum += round_up(size, granularity);
        }
        return {detail::equal_shard(sum, world), elements.size(), 0};
    }

    static void partition(std::span<PartitionItem> items, State& state,
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
