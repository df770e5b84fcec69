#pragma once

// Functions that place the items of one bucket and cut it, for the shipped partitioners.

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../padding.hpp"
#include "../../partitioner.hpp"
#include "order_by.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Places the items one after the other and returns the end of the last one, padding
/// included.
[[gnu::cold]] inline std::size_t place_in_order(std::span<PartitionItem> items) {
    std::size_t end = 0;
    for (PartitionItem& item : items) {
        item.offset = end;
        end += padded_size(item.elements);
    }
    return end;
}

/// @brief Places the items in order and cuts the bucket into W equal extents.
[[gnu::cold]] inline void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts) {
    std::size_t const world = cuts.size() - 1;
    std::size_t const extent = even_extent(place_in_order(items), world);
    for (std::size_t rank = 0; rank <= world; ++rank) {
        cuts[rank] = rank * extent;
    }
}

/// @brief Orders the items by owner and cuts the bucket where the owner changes. Items of one owner
/// keep their order.
[[gnu::cold]] inline void place_by_owner(std::span<PartitionItem> items,
                                         std::span<std::uint64_t const> owners,
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
            end += padded_size(items[placed].elements);
        }
        cuts[rank + 1] = end;
    }
}

} // namespace ZERO_NAMESPACE::detail
