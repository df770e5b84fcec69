#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../padding.hpp"
#include "../partitioner.hpp"
#include "../range.hpp"
#include "order_by.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Places the items one after the other and returns where the last ends.
inline std::size_t place_in_order(std::span<PartitionItem> items) {
    std::size_t end = 0;
    for (auto& item : items) {
        item.offset = end;
        end += round_up(item.elements, granularity);
    }
    return end;
}

/// @brief The length of each of W equal shards of `elements`.
constexpr std::size_t equal_shard(std::size_t elements, std::size_t world) noexcept {
    return round_up((elements + world - 1) / world, granularity);
}

/// @brief Places the items one after the other and cuts them into W equal shards.
inline void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts) {
    std::size_t const world = cuts.size() - 1;
    std::size_t const shard = equal_shard(place_in_order(items), world);
    for (std::size_t rank = 0; rank <= world; ++rank) {
        cuts[rank] = rank * shard;
    }
}

/// @brief Orders the items by owner, so that what a rank owns is one extent of the bucket, and cuts
/// there.
inline void place_by_owner(std::span<PartitionItem> items, std::span<std::uint64_t const> owners,
                           std::span<std::size_t> cuts) {
    List<PartitionItem> const unordered{std::span<PartitionItem const>(items)};
    std::vector<std::size_t> const order = order_by(owners);
    std::size_t end = 0;
    std::size_t placed = 0;
    cuts[0] = 0;
    for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
        for (; placed < order.size() && owners[order[placed]] == rank; ++placed) {
            items[placed] = unordered[order[placed]];
            items[placed].offset = end;
            end += round_up(items[placed].elements, granularity);
        }
        cuts[rank + 1] = end;
    }
}

} // namespace ZERO_NAMESPACE::detail
