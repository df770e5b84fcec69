#pragma once

#include "flat_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zero {

/// @brief The most gradient buckets that are open at once when units finish in reverse order of use. O(units * buckets of a unit).
///
/// A bucket opens with the first of its units. With `in_index_order` (stages 0 to 2) it closes when it and all buckets before it are
/// complete; otherwise (stage 3) with the last of its units.
inline std::size_t most_open_buckets(FlatLayout const& layout, bool in_index_order) {
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
    std::size_t open = 0;
    std::size_t most = 0;
    std::size_t next = 0;
    for (std::size_t unit = layout.units(); unit-- > 0;) {
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets && !is_open[bucket]) {
                is_open[bucket] = true;
                ++open;
            }
        }
        most = std::max(most, open);
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets && --units_left[bucket] == 0 && !in_index_order) {
                --open;
            }
        }
        for (; in_index_order && next < buckets && units_left[next] == 0; ++next) {
            open -= is_open[next] ? 1 : 0;
        }
    }
    return most;
}

/// @brief The most buckets that one unit needs at once.
inline std::size_t most_buckets_of_a_unit(FlatLayout const& layout) {
    std::size_t most = 0;
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        most = std::max(most, layout.unit_buckets(unit).size());
    }
    return most;
}

/// @brief Elements of the largest bucket among the first `buckets`, padding included.
inline std::size_t largest_bucket(FlatLayout const& layout, std::size_t buckets) {
    std::size_t largest = 0;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
        largest = std::max(largest, layout.elements(bucket));
    }
    return largest;
}

} // namespace zero
