#pragma once

#include "count_gathers.hpp"

#include "../../core/detail/light_std.hpp"
#include "gather_order.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<std::size_t> count_gathers(FlatLayout const& layout,
                                                        std::size_t micro_steps,
                                                        std::span<std::size_t const> acquired_units,
                                                        GatherOptions const& gather) {
    std::vector<std::size_t> counts(layout.buckets(), 0);
    std::vector<char> is_kept(layout.buckets(), false);
    std::size_t const length = acquired_units.size() / larger(micro_steps, std::size_t{1});
    GatherOrder order(layout, gather);
    order.assign(acquired_units.first(length));
    for (std::size_t position = 0; position < acquired_units.size(); ++position) {
        auto const buckets = layout.unit_buckets(acquired_units[position]);
        for (std::size_t index = 0; index < buckets.size(); ++index) {
            std::size_t const bucket = buckets[index];
            counts[bucket] += is_kept[bucket] != 0 ? 0 : 1;
            bool const is_ordered = position < length * micro_steps;
            is_kept[bucket] =
                layout.bucket(bucket).is_persistent
                || (is_ordered && order.kept_until(position % length, index) != GatherOrder::none);
        }
    }
    return counts;
}

} // namespace ZERO_NAMESPACE::detail
