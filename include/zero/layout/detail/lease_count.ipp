#pragma once

#include "../lease_count.hpp"

#include <vector>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::size_t most_open_buckets(FlatLayout const& layout, bool in_index_order,
                                               std::size_t type) {
    std::size_t const buckets = layout.trainable_buckets();
    std::vector<std::size_t> units_left(buckets, 0);
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets) {
                ++units_left[bucket];
            }
        }
    }
    std::vector<char> is_open(buckets, false);
    auto const is_counted = [&](std::size_t bucket) {
        return layout.bucket(bucket).type == type ? std::size_t{1} : std::size_t{0};
    };
    std::size_t open = 0;
    std::size_t most = 0;
    std::size_t next = 0;
    for (std::size_t const unit : layout.unit_order()) {
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets && !is_open[bucket]) {
                is_open[bucket] = true;
                open += is_counted(bucket);
            }
        }
        most = detail::larger(most, open);
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets && --units_left[bucket] == 0 && !in_index_order) {
                open -= is_counted(bucket);
            }
        }
        for (; in_index_order && next < buckets && units_left[next] == 0; ++next) {
            open -= is_open[next] ? is_counted(next) : 0;
        }
    }
    return most;
}

ZERO_COLD_INLINE std::size_t most_buckets_of_a_unit(FlatLayout const& layout, std::size_t type) {
    std::size_t most = 0;
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        std::size_t count = 0;
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            count += layout.bucket(bucket).type == type ? 1 : 0;
        }
        most = detail::larger(most, count);
    }
    return most;
}

ZERO_COLD_INLINE std::size_t largest_bucket(FlatLayout const& layout, std::size_t buckets,
                                            std::size_t type) {
    std::size_t largest = 0;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
        largest = layout.bucket(bucket).type == type
                      ? detail::larger(largest, layout.elements(bucket))
                      : largest;
    }
    return largest;
}

} // namespace ZERO_NAMESPACE
