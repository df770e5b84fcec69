#pragma once

#include "load_state.hpp"

#include "plan_manifest.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE NeededIntervals::NeededIntervals(FlatLayout const& layout, StateTable const& table)
    : _layout(&layout), _table(&table), _by_name(layout.parameters().size()) {
    std::iota(_by_name.begin(), _by_name.end(), std::size_t{0});
    std::stable_sort(_by_name.begin(), _by_name.end(), [&](std::size_t a, std::size_t b) {
        return stored_name(layout.parameter(a)) < stored_name(layout.parameter(b));
    });
}

ZERO_COLD_INLINE void NeededIntervals::operator()(ManifestParameter& stored) const {
    auto& intervals = stored.intervals;
    std::vector<char> is_needed(intervals.size(), 0);
    auto own = std::lower_bound(_by_name.begin(), _by_name.end(), stored.name,
                                [&](std::size_t index, std::string const& name) {
                                    return stored_name(_layout->parameter(index)) < name;
                                });
    // A tile is a parameter of the layout, and all tiles of a parameter have its name.
    for (; own != _by_name.end() && stored_name(_layout->parameter(*own)) == stored.name; ++own) {
        std::uint64_t const first = _layout->parameter(*own).tile.begin;
        for (std::size_t array = 0; array < _table->arrays().size(); ++array) {
            std::size_t at = 0;
            for (HeldSlice const& slice : _table->slices(array, *own)) { // ascending
                std::uint64_t const begin = first + slice.begin;
                std::uint64_t const end = begin + slice.elements;
                while (at < intervals.size() && intervals[at].end <= begin) {
                    ++at;
                }
                for (std::size_t next = at; next < intervals.size() && intervals[next].begin < end;
                     ++next) {
                    is_needed[next] = 1;
                }
            }
        }
    }
    std::size_t kept = 0;
    for (std::size_t index = 0; index < intervals.size(); ++index) {
        if (is_needed[index] != 0) {
            intervals[kept++] = intervals[index];
        }
    }
    intervals.resize(kept);
}

} // namespace ZERO_NAMESPACE::detail
