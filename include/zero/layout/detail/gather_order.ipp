#pragma once

#include "gather_order.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::size_t gathered_elements(FlatLayout const& layout, std::size_t unit) {
    std::size_t elements = 0;
    for (std::size_t const bucket : layout.unit_buckets(unit)) {
        elements += layout.bucket(bucket).is_persistent ? 0 : layout.elements(bucket);
    }
    return elements;
}

ZERO_COLD_INLINE void GatherOrder::assign(std::span<std::size_t const> units) {
    _units.assign(units.begin(), units.end());
    _sums.assign(1, 0);
    _first.clear();
    std::size_t entries = 0;
    for (std::size_t const unit : units) {
        _sums.push_back(_sums.back() + gathered_elements(*_layout, unit));
        _first.push_back(entries);
        entries += _layout->unit_buckets(unit).size();
    }
    _kept_until.assign(entries, none);
    find_prefetch_ends();
    find_kept();
}

/// Returns the elements of the units after `position` and before `other`.
ZERO_COLD_INLINE std::size_t GatherOrder::elements_between(std::size_t position,
                                                           std::size_t other) const {
    return _sums[other] - _sums[position + 1];
}

ZERO_COLD_INLINE void GatherOrder::find_prefetch_ends() {
    _prefetch_end.clear();
    std::size_t end = 0;
    for (std::size_t position = 0; position < size(); ++position) {
        end = larger(end, position + 1);
        if (!_options->prefetch_elements.has_value()) {
            end = smaller(position + 2, size());
        }
        while (_options->prefetch_elements.has_value() && end < size()
               && elements_between(position, end + 1) <= *_options->prefetch_elements) {
            ++end;
        }
        _prefetch_end.push_back(end);
    }
}

ZERO_COLD_INLINE bool GatherOrder::is_kept(std::size_t position, std::size_t again) {
    if (_options->max_reuse_distance.has_value()
        && elements_between(position, again) <= *_options->max_reuse_distance) {
        return true;
    }
    if (_options->keep_after_forward == GatherOptions::all) {
        return true;
    }
    ++_searches;
    std::size_t others = 0; // different units in between, without the unit itself
    for (std::size_t between = position + 1;
         between < again && others < _options->keep_after_forward; ++between) {
        std::size_t const unit = _units[between];
        if (unit != _units[position] && _seen[unit] != _searches) {
            _seen[unit] = _searches;
            ++others;
        }
    }
    return others < _options->keep_after_forward;
}

ZERO_COLD_INLINE void GatherOrder::find_kept() {
    if (!_options->max_reuse_distance.has_value() && _options->keep_after_forward == 0) {
        return;
    }
    _next.assign(_layout->buckets(), none);
    _seen.assign(_layout->units(), 0);
    _searches = 0;
    for (std::size_t position = size(); position-- > 0;) {
        std::size_t entry = _first[position];
        std::size_t asked = none; // buckets of a unit are mostly used again together
        bool answer = false;
        for (std::size_t const bucket : _layout->unit_buckets(_units[position])) {
            std::size_t const again = _next[bucket];
            _next[bucket] = position;
            if (again != none && again != asked) {
                asked = again;
                answer = is_kept(position, again);
            }
            _kept_until[entry++] = again != none && answer ? again : none;
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
