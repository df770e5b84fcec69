#pragma once

#include "../balanced_partitioner.hpp"
#include "../padding.hpp"
#include "order_by.hpp"
#include "place_in_bucket.hpp"

#include <limits>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE BalancedPartitioner::State
BalancedPartitioner::begin(std::span<std::size_t const> elements, std::size_t world) {
    std::vector<std::uint64_t> descending;
    for (std::size_t const size : elements) {
        descending.push_back(std::numeric_limits<std::uint64_t>::max() - padded_size(size));
    }
    State state{std::vector<std::uint64_t>(elements.size()), 0};
    std::vector<std::size_t> held(world, 0);
    for (std::size_t const index : detail::order_by(descending)) {
        std::size_t least = 0;
        for (std::size_t rank = 1; rank < world; ++rank) {
            least = held[rank] < held[least] ? rank : least;
        }
        held[least] += padded_size(elements[index]);
        state.owners[index] = least;
    }
    return state;
}

ZERO_COLD_INLINE void BalancedPartitioner::partition(std::span<PartitionItem> items, State& state,
                                                     std::span<std::size_t> cuts) {
    detail::place_by_owner(items, std::span(state.owners).subspan(state.next, items.size()), cuts);
    state.next += items.size();
}

} // namespace ZERO_NAMESPACE
