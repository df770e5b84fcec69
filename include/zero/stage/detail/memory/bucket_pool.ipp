#pragma once

#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "bucket_pool.hpp"

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
    : _cells_of(plan.places.size()), _is_claimed(plan.places.size(), false),
      _is_moved(plan.places.size(), false) {
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
    _holder.assign(_cell_begins.size() - 1, none);
    _last_user.assign(_cell_begins.size() - 1, none);
    _first_spare = cell_at(_cell_begins, plan.planned_elements());
    for (Range const& place : plan.places) {
        _planned.push_back({cell_at(_cell_begins, place.begin), cell_at(_cell_begins, place.end)});
    }
}

ZERO_INLINE bool LeaseMap::claim(std::size_t bucket, LeaseChoice choice) {
    if (_is_claimed[bucket] != 0) {
        return true;
    }
    Range const cells = find(bucket, choice, 0);
    if (cells.is_empty() && !_planned[bucket].is_empty()) {
        return false;
    }
    for (std::size_t cell = cells.begin; cell < cells.end; ++cell) {
        _holder[cell] = bucket;
    }
    _is_moved[bucket] |= static_cast<char>(!(cells == _cells_of[bucket]));
    _cells_of[bucket] = cells;
    _is_claimed[bucket] = true;
    return true;
}

ZERO_INLINE bool LeaseMap::has_room_after_earlier(std::size_t bucket) const {
    return _planned[bucket].is_empty() || !find(bucket, LeaseChoice::any_place, bucket).is_empty();
}

ZERO_INLINE void LeaseMap::free(std::size_t bucket) {
    if (_is_claimed[bucket] != 0) {
        Range const cells = _cells_of[bucket];
        for (std::size_t cell = cells.begin; cell < cells.end; ++cell) {
            _holder[cell] = none;
        }
        _is_claimed[bucket] = false;
    }
}

ZERO_INLINE void LeaseMap::use(std::size_t bucket, FunctionRef<std::size_t> visit) {
    std::size_t visited = none;
    if (_is_moved[bucket] != 0) {
        _is_moved[bucket] = false;
        visited = bucket;
        visit(bucket);
    }
    for (std::size_t cell = _cells_of[bucket].begin; cell < _cells_of[bucket].end; ++cell) {
        if (_last_user[cell] != none && _last_user[cell] != visited) {
            visited = _last_user[cell];
            visit(visited);
        }
        _last_user[cell] = bucket;
    }
}

ZERO_INLINE bool LeaseMap::is_free(Range cells, std::size_t first) const {
    bool result = true;
    for (std::size_t cell = cells.begin; result && cell < cells.end; ++cell) {
        result = is_cell_free(cell, first);
    }
    return result;
}

/// The smallest run of free cells that holds `elements` elements, or an empty range.
ZERO_INLINE Range LeaseMap::best_fit(std::size_t elements, Range among, std::size_t first) const {
    Range best{};
    std::size_t best_size = none;
    std::size_t begin = among.begin; // all cells from here to the current one are free
    for (std::size_t cell = among.begin; cell < among.end; ++cell) {
        if (!is_cell_free(cell, first)) {
            begin = cell + 1;
            continue;
        }
        while (_cell_begins[cell + 1] - _cell_begins[begin + 1] >= elements) {
            ++begin; // the run is large enough without its first cell
        }
        std::size_t const size = _cell_begins[cell + 1] - _cell_begins[begin];
        if (size >= elements && size < best_size) {
            best = {begin, cell + 1};
            best_size = size;
        }
    }
    return best;
}

/// The cells that a bucket may claim, or an empty range.
ZERO_INLINE Range LeaseMap::find(std::size_t bucket, LeaseChoice choice, std::size_t first) const {
    Range cells = _planned[bucket];
    if (is_free(cells, first)) {
        return cells;
    }
    std::size_t const elements = _cell_begins[cells.end] - _cell_begins[cells.begin];
    cells = {};
    if (choice != LeaseChoice::own_place) {
        cells = best_fit(elements, {_first_spare, _holder.size()}, first);
    }
    if (choice == LeaseChoice::any_place && cells.is_empty()) {
        cells = best_fit(elements, {0, _holder.size()}, first);
    }
    return cells;
}

ZERO_COLD_INLINE void throw_late_gradient(FlatLayout const& layout, std::size_t parameter,
                                          std::size_t bucket, std::size_t rank) {
    throw_error<LateGradient>(
        {"zero: a gradient for parameter '", layout.parameter(parameter).name,
         "' comes after the reduction of its ", layout.bucket_text(bucket),
         " was enqueued in this micro-step (rank ", rank, "); call ",
         (layout.backward_call() != nullptr ? layout.backward_call() : "gradients_ready()"),
         (layout.backward_call() != nullptr
              ? " once for each micro-step, with the sum of all its losses."
              : " only after the last gradient of the unit.")});
}

ZERO_COLD_INLINE void throw_no_gradient_lease(FlatLayout const& layout, std::size_t unit,
                                              std::size_t rank) {
    throw_error<OutOfOrder>(
        {"zero: ", layout.unit_text(unit), " comes out of order: its ",
         layout.bucket_text(layout.unit_buckets(unit).front()),
         " finds no free gradient lease on rank ", rank,
         (layout.backward_call() != nullptr
              ? "; list the units in the order in which the forward pass uses them, or set "
                "extra_leases."
              : "; call gradients_ready() of a unit before gradients() of the next (even if the "
                "unit has none), number units in their order of use, or set extra_leases.")});
}

ZERO_COLD_INLINE void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit,
                                               std::size_t rank) {
    throw_error<OutOfOrder>(
        {"zero: ", layout.unit_text(unit), " finds no room for its ",
         layout.unit_buckets(unit).size(),
         layout.unit_buckets(unit).size() == 1 ? " gathered bucket, "
                                               : " gathered buckets, the first is ",
         layout.bucket_text(layout.unit_buckets(unit).front()),
         "; two consecutive units have room at once, and fewer where max_live_elements is less, so "
         "release units that are not in use, raise max_live_elements if it is set, or set "
         "extra_leases (rank ",
         rank, ")."});
}

ZERO_COLD_INLINE void throw_no_room(FlatLayout const& layout, std::size_t bucket,
                                    std::size_t rank) {
    throw_error<OutOfOrder>({"zero: ", layout.bucket_text(bucket), " of ", layout.elements(bucket),
                             " elements finds no room on rank ", rank,
                             ", which is a bug of zero; please report it, and set extra_leases."});
}

} // namespace ZERO_NAMESPACE::detail
