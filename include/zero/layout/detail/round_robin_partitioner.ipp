#pragma once

#include "../round_robin_partitioner.hpp"
#include "place_in_bucket.hpp"

#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void RoundRobinPartitioner::partition(std::span<PartitionItem> items, State& state,
                                                       std::span<std::size_t> cuts) {
    std::size_t const world = cuts.size() - 1;
    std::vector<std::uint64_t> owners;
    for (std::size_t index = 0; index < items.size(); ++index) {
        owners.push_back(state.turn++ % world);
    }
    detail::place_by_owner(items, owners, cuts);
}

} // namespace ZERO_NAMESPACE
