#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../lease_plan.hpp"
#include "../../padding.hpp"
#include "gather_order.hpp"

#include <span>
#include <utility>
#include <vector>

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

ZERO_COLD_INLINE std::vector<std::size_t> used_units(FlatLayout const& layout) {
    std::vector<std::size_t> units;
    auto const add = [&](std::size_t unit) {
        if (!layout.unit_parameters(unit).empty()) {
            units.push_back(unit);
        }
    };
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        add(unit);
    }
    for (std::size_t const unit : layout.unit_order()) {
        add(unit);
    }
    return units;
}

/// @brief Builds the lifetimes of gathered buckets. Step s lasts while the unit at position s of
/// the order is in use.
class GatheredLifetimes {
public:
    GatheredLifetimes(FlatLayout const& layout, GatherOptions const& gather)
        : _layout(&layout), _limit(gather.max_live_elements), _order(layout, gather),
          _lifetimes(layout.buckets()) {
        std::vector<std::size_t> const units = used_units(layout);
        _order.assign(as_span(units));
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            if (layout.bucket(bucket).is_persistent) {
                _lifetimes[bucket].push_back({0, larger(_order.size(), std::size_t{1})});
                _persistent += size(bucket);
            }
        }
        _elements.assign(_order.size(), _persistent);
        for (std::size_t step = 0; step < _order.size(); ++step) {
            for (std::size_t const bucket : _layout->unit_buckets(_order.unit(step))) {
                add(bucket, {step, step + 1});
            }
            _largest = _elements[step] > _elements[_largest] ? step : _largest;
        }
        if (!_elements.empty() && _elements[_largest] > _limit) {
            throw_limit(_order.unit(_largest), _elements[_largest]);
        }
    }

    /// @brief Extends the lifetimes by units that are gathered in advance or held together with the
    /// next unit, and by buckets that are kept, as far as the limit allows. A unit is added with
    /// all its buckets, and a kept bucket for its whole interval.
    void extend() {
        std::size_t begin = 0;
        for (std::size_t position = 1; position < _order.size(); ++position) {
            while (begin + 1 < position && _order.prefetch_end(begin) <= position) {
                ++begin;
            }
            auto const buckets = _layout->unit_buckets(_order.unit(position));
            std::size_t first = position;
            while (first > begin && has_room(first - 1, buckets)) {
                --first;
            }
            for (std::size_t const bucket : buckets) {
                add(bucket, {first, position});
            }
        }
        for (std::size_t position = 0; position < _order.size(); ++position) {
            auto const buckets = _layout->unit_buckets(_order.unit(position));
            for (std::size_t index = 0; index < buckets.size(); ++index) {
                Range const kept{position, _order.kept_until(position, index)};
                if (kept.end != GatherOrder::none && has_room(buckets[index], kept)) {
                    add(buckets[index], kept);
                }
            }
        }
    }

    [[nodiscard]] LeasePlan plan(std::size_t spares, std::size_t type) const {
        List<List<Range>> lifetimes(_layout->buckets());
        for_buckets(*_layout, {0, _layout->buckets()}, type, [&](std::size_t bucket) {
            lifetimes[bucket] = List<Range>(as_span(_lifetimes[bucket]));
        });
        return place_leases(*_layout, lifetimes, _order.size() + 1, spares);
    }

    [[noreturn]] void throw_limit(std::size_t unit, std::size_t needed) const {
        if (_persistent > _limit) {
            throw_error<InvalidArgument>({"zero: max_live_elements is ", _limit,
                                          ", but what stays gathered until the "
                                          "update takes ",
                                          _persistent,
                                          " elements with padding; set a larger limit, or a "
                                          "lower keep_until_update or max_persistent_elements."});
        }
        throw_error<InvalidArgument>(
            {"zero: max_live_elements is ", _limit, ", but ", _layout->unit_text(unit), " needs ",
             needed, " gathered elements with padding",
             (_persistent == 0 ? std::string()
                               : text({", ", _persistent, " of them until the update"})),
             "; set a larger limit, ",
             (_persistent == 0 ? "" : "a lower keep_until_update or max_persistent_elements, "),
             "give the parameters smaller units, or register a large one by tiles()."});
    }

    /// @brief Returns the unit that needs the most elements alone; there is one.
    [[nodiscard]] std::size_t largest_unit() const { return _order.unit(_largest); }

private:
    [[nodiscard]] std::size_t size(std::size_t bucket) const {
        return padded_size(_layout->elements(bucket));
    }

    [[nodiscard]] bool is_live(std::size_t step, std::size_t bucket) const {
        bool is = false;
        for (Range const& steps : _lifetimes[bucket]) {
            is = is || (steps.begin <= step && step < steps.end);
        }
        return is;
    }

    [[nodiscard]] bool has_room(std::size_t step, std::span<std::size_t const> buckets) const {
        std::size_t needed = _elements[step];
        for (std::size_t const bucket : buckets) {
            needed += is_live(step, bucket) ? 0 : size(bucket);
        }
        return needed <= _limit;
    }

    [[nodiscard]] bool has_room(std::size_t bucket, Range steps) const {
        bool has = true;
        for (std::size_t step = steps.begin;
             _limit != GatherOptions::all && has && step < steps.end; ++step) {
            has = is_live(step, bucket) || _elements[step] + size(bucket) <= _limit;
        }
        return has;
    }

    /// Adds steps to the lifetime of a bucket, which stays a list of disjoint, ascending ranges
    /// that do not touch.
    void add(std::size_t bucket, Range added) {
        for (std::size_t step = added.begin; _limit != GatherOptions::all && step < added.end;
             ++step) {
            _elements[step] += is_live(step, bucket) ? 0 : size(bucket);
        }
        List<Range>& lifetime = _lifetimes[bucket];
        List<Range> merged;
        bool is_placed = false;
        for (Range const& steps : lifetime) {
            if (steps.end >= added.begin && steps.begin <= added.end) {
                added = {smaller(steps.begin, added.begin), larger(steps.end, added.end)};
                continue;
            }
            if (!is_placed && steps.begin > added.end) {
                merged.push_back(added);
                is_placed = true;
            }
            merged.push_back(steps);
        }
        if (!is_placed) {
            merged.push_back(added);
        }
        lifetime = std::move(merged);
    }

    FlatLayout const* _layout;
    std::size_t _limit;
    GatherOrder _order;
    List<List<Range>> _lifetimes;       ///< by bucket
    std::vector<std::size_t> _elements; ///< by step: elements in flight, if there is a limit
    std::size_t _persistent = 0;        ///< elements of the persistent buckets
    std::size_t _largest = 0;           ///< the step with the most elements
};

ZERO_COLD_INLINE LeasePlan plan_gathered(FlatLayout const& layout, GatherOptions const& gather,
                                         std::size_t spares, std::size_t type) {
    GatheredLifetimes lifetimes(layout, gather);
    LeasePlan in_turn; // one unit at a time
    if (gather.max_live_elements != GatherOptions::all) {
        in_turn = lifetimes.plan(spares, type);
        if (in_turn.planned_elements() > gather.max_live_elements) {
            lifetimes.throw_limit(lifetimes.largest_unit(), in_turn.planned_elements());
        }
    }
    lifetimes.extend();
    LeasePlan plan = lifetimes.plan(spares, type);
    bool const has_gaps = plan.planned_elements() > gather.max_live_elements;
    return has_gaps ? std::move(in_turn) : std::move(plan);
}

} // namespace ZERO_NAMESPACE::detail
