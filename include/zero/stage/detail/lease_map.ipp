#pragma once

#include "lease_map.hpp"

#include "../../layout/detail/order_by.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the position of `offset` in `cell_begins`, which contains it.
ZERO_COLD_INLINE std::size_t cell_at(std::vector<std::size_t> const& cell_begins,
                                     std::size_t offset) {
    std::size_t low = 0;
    for (std::size_t high = cell_begins.size(); high - low > 1;) {
        std::size_t const middle = low + (high - low) / 2;
        (cell_begins[middle] <= offset ? low : high) = middle;
    }
    return low;
}

ZERO_COLD_INLINE LeaseMap::LeaseMap(LeasePlan const& plan)
    : _cells_of(plan.places.size()), _is_claimed(plan.places.size(), false) {
    std::vector<std::uint64_t> cuts{0, plan.planned_elements()};
    for (Range const& place : plan.places) {
        cuts.push_back(place.begin);
        cuts.push_back(place.end);
    }
    std::size_t spare = plan.planned_elements();
    for (std::size_t const elements : plan.spares) {
        cuts.push_back(spare += elements);
    }
    for (std::size_t const index : order_by(cuts)) {
        if (_cell_begins.empty() || _cell_begins.back() != cuts[index]) {
            _cell_begins.push_back(cuts[index]);
        }
    }
    _is_taken.assign(_cell_begins.size() - 1, false);
    _last_user.assign(_cell_begins.size() - 1, none);
    for (Range const& place : plan.places) {
        _planned.push_back({cell_at(_cell_begins, place.begin), cell_at(_cell_begins, place.end)});
    }
}

ZERO_INLINE bool LeaseMap::claim(std::size_t bucket) {
    if (_is_claimed[bucket] != 0) {
        return true;
    }
    Range cells = _planned[bucket];
    if (!is_free(cells)) {
        cells = best_fit(_cell_begins[cells.end] - _cell_begins[cells.begin]);
        if (cells.is_empty()) {
            return false;
        }
    }
    set_taken(cells, true);
    _cells_of[bucket] = cells;
    _is_claimed[bucket] = true;
    return true;
}

ZERO_INLINE void LeaseMap::free(std::size_t bucket) {
    if (_is_claimed[bucket] != 0) {
        set_taken(_cells_of[bucket], false);
        _is_claimed[bucket] = false;
    }
}

ZERO_INLINE void LeaseMap::use(std::size_t bucket, FunctionRef<std::size_t> visit) {
    std::size_t visited = none;
    for (std::size_t cell = _cells_of[bucket].begin; cell < _cells_of[bucket].end; ++cell) {
        if (_last_user[cell] != none && _last_user[cell] != visited) {
            visited = _last_user[cell];
            visit(visited);
        }
        _last_user[cell] = bucket;
    }
}

ZERO_INLINE bool LeaseMap::is_free(Range cells) const {
    bool result = true;
    for (std::size_t cell = cells.begin; result && cell < cells.end; ++cell) {
        result = _is_taken[cell] == 0;
    }
    return result;
}

/// The smallest run of free cells that holds so many elements, or an empty range.
ZERO_INLINE Range LeaseMap::best_fit(std::size_t elements) const {
    Range best{};
    std::size_t best_size = none;
    std::size_t begin = 0; // all cells from here to the current one are free
    for (std::size_t cell = 0; cell < _is_taken.size(); ++cell) {
        if (_is_taken[cell] != 0) {
            begin = cell + 1;
            continue;
        }
        while (_cell_begins[cell + 1] - _cell_begins[begin + 1] >= elements) {
            ++begin; // the run holds them without its first cell
        }
        std::size_t const size = _cell_begins[cell + 1] - _cell_begins[begin];
        if (size >= elements && size < best_size) {
            best = {begin, cell + 1};
            best_size = size;
        }
    }
    return best;
}

ZERO_INLINE void LeaseMap::set_taken(Range cells, bool is_taken) {
    for (std::size_t cell = cells.begin; cell < cells.end; ++cell) {
        _is_taken[cell] = is_taken;
    }
}

} // namespace ZERO_NAMESPACE::detail
