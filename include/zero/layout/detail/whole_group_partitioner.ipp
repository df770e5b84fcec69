#pragma once

#include "../../core/detail/light_std.hpp"
#include "../padding.hpp"
#include "../whole_group_partitioner.hpp"
#include "place_in_bucket.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE WholeGroupPartitioner::State
WholeGroupPartitioner::begin(std::span<std::size_t const> elements, std::size_t world) noexcept {
    std::size_t sum = 0;
    for (std::size_t const size : elements) {
        sum += padded_size(size);
    }
    return {even_extent(sum, world), elements.size(), 0};
}

ZERO_COLD_INLINE void WholeGroupPartitioner::partition(std::span<PartitionItem> items, State& state,
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

} // namespace ZERO_NAMESPACE
