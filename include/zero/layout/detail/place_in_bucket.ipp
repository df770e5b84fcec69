#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../bucketer.hpp"
#include "../padding.hpp"
#include "order_by.hpp"
#include "place_in_bucket.hpp"

#include <vector>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::size_t place_in_order(std::span<PartitionItem> items) {
    std::size_t end = 0;
    for (PartitionItem& item : items) {
        item.offset = end;
        end += padded_size(item.elements);
    }
    return end;
}

ZERO_COLD_INLINE void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts) {
    std::size_t const world = cuts.size() - 1;
    std::size_t const extent = even_extent(place_in_order(items), world);
    for (std::size_t rank = 0; rank <= world; ++rank) {
        cuts[rank] = rank * extent;
    }
}

ZERO_COLD_INLINE void place_by_owner(std::span<PartitionItem> items,
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

/// @brief Returns how many of the first parameters of `order` may share a bucket.
ZERO_COLD_INLINE std::size_t count_shareable(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> order,
                                             bool inside_units) {
    ParameterSpec const& first = parameters[order[0]];
    std::size_t count = 1;
    while (first.units.size() == 1 && count < order.size()
           && parameters[order[count]].units.size() == 1
           && (!inside_units || parameters[order[count]].units == first.units)) {
        ++count;
    }
    return count;
}

ZERO_COLD_INLINE void for_bucket_members(std::span<ParameterSpec const> parameters,
                                         std::span<std::size_t const> order, bool inside_units,
                                         BucketerRef bucketer, std::size_t element_bytes,
                                         FunctionRef<std::span<std::size_t const>> visit) {
    while (!order.empty()) {
        std::size_t const shareable = count_shareable(parameters, order, inside_units);
        List<BucketItem> items;
        for (std::size_t const index : order.first(shareable)) {
            items.push_back(
                {padded_size(parameters[index].elements), parameters[index].units.front()});
        }
        for (std::size_t begin = 0; begin < shareable;) {
            std::size_t const taken =
                bucketer.take(as_span(items).subspan(begin), bucketer.options, element_bytes);
            if (taken == 0 || taken > shareable - begin) {
                throw_error<InvalidArgument>(
                    {"zero: the bucketer took ", taken, " of ", shareable - begin,
                     " parameters; it must take at least one and at most all."});
            }
            visit(order.subspan(begin, taken));
            begin += taken;
        }
        order = order.subspan(shareable);
    }
}

} // namespace ZERO_NAMESPACE::detail
