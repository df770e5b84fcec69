#pragma once

#include "../../../core/hash.hpp"
#include "../../lease_plan.hpp"
#include "../../padding.hpp"
#include "../partition/order_by.hpp"
#include "gather_order.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Buckets with equal lifetimes, which get adjacent places.
struct LeaseBlock {
    std::vector<std::size_t> buckets;
    std::size_t elements = 0;
};

/// @brief Places blocks one after the other, each at the lowest offset that is free during its
/// lifetime. Remembers which blocks are in flight at each step.
class LeasePlacer {
public:
    LeasePlacer(FlatLayout const& layout, List<List<Range>> const& lifetimes, std::size_t steps,
                std::span<std::size_t const> further)
        : _layout(&layout), _lifetimes(&lifetimes), _steps(steps), _further(further) {
        group();
        find_peak();
        _is_found.assign(_blocks.size(), false);
        std::vector<std::uint64_t> begins;
        for (LeaseBlock const& block : _blocks) {
            begins.push_back(lifetime(block)[0].begin);
        }
        // Either order may leave gaps that the other fills. Ties keep the order of time.
        std::vector<std::size_t> const by_time = order_by(begins);
        place_by(by_time, [&](std::size_t block) { return _blocks[block].elements; });
        std::vector<std::size_t> const places = _places;
        std::size_t const elements = _elements;
        if (elements == _most_in_flight) {
            return;
        }
        place_by(by_time, [&](std::size_t block) { return steps_of(lifetime(_blocks[block])); });
        if (elements <= _elements) {
            _places = places;
            _elements = elements;
        }
    }

    [[nodiscard]] LeasePlan plan(std::size_t spares) const {
        LeasePlan plan;
        plan.places.resize(_layout->buckets());
        plan.elements = _elements;
        std::vector<std::uint64_t> keys;
        std::size_t index = 0;
        for (LeaseBlock const& block : _blocks) {
            std::size_t begin = _places[index++];
            for (std::size_t const bucket : block.buckets) {
                plan.places[bucket] = {begin, begin + size_of_place(bucket)};
                keys.push_back(~std::uint64_t{size_of_place(bucket)});
                begin = plan.places[bucket].end;
            }
        }
        List<Range> const peak{{_peak, _peak + 1}};
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            if (is_common_step((*_lifetimes)[bucket], peak)) {
                plan.peak.push_back(bucket);
            }
        }
        for (std::size_t const largest : order_by(keys)) {
            if (plan.spares.size() < spares && ~keys[largest] != 0) {
                plan.spares.push_back(static_cast<std::size_t>(~keys[largest]));
                plan.elements += plan.spares.back();
            }
        }
        return plan;
    }

private:
    [[nodiscard]] std::size_t size_of_place(std::size_t bucket) const {
        return padded_size(_layout->elements(bucket)) + (_further.empty() ? 0 : _further[bucket]);
    }

    [[nodiscard]] List<Range> const& lifetime(LeaseBlock const& block) const {
        return (*_lifetimes)[block.buckets.front()];
    }

    [[nodiscard]] bool is_equal(List<Range> const& a, List<Range> const& b) const {
        bool result = a.size() == b.size();
        for (std::size_t index = 0; result && index < a.size(); ++index) {
            result = a[index] == b[index];
        }
        return result;
    }

    void group() {
        std::vector<std::uint64_t> keys;
        for (List<Range> const& lifetime : *_lifetimes) {
            Hash hash;
            for (Range const& steps : lifetime) {
                hash.add(std::uint64_t{steps.begin}).add(std::uint64_t{steps.end});
            }
            keys.push_back(hash.value());
        }
        for (std::size_t const bucket : order_by(keys)) {
            if ((*_lifetimes)[bucket].empty()) {
                continue;
            }
            if (_blocks.empty()
                || !is_equal(lifetime(_blocks[_blocks.size() - 1]), (*_lifetimes)[bucket])) {
                _blocks.push_back({});
            }
            LeaseBlock& block = _blocks[_blocks.size() - 1];
            block.buckets.push_back(bucket);
            block.elements += size_of_place(bucket);
        }
    }

    /// Finds the first step with the most elements in flight. No plan can undercut their number.
    void find_peak() {
        std::vector<std::size_t> begun(_steps + 1, 0);
        std::vector<std::size_t> ended(_steps + 1, 0);
        for (LeaseBlock const& block : _blocks) {
            for (Range const& steps : lifetime(block)) {
                begun[steps.begin] += block.elements;
                ended[steps.end] += block.elements;
            }
        }
        std::size_t now = 0;
        for (std::size_t step = 0; step <= _steps; ++step) {
            now = now + begun[step] - ended[step];
            if (now > _most_in_flight) {
                _most_in_flight = now;
                _peak = step;
            }
        }
    }

    [[nodiscard]] static std::size_t steps_of(List<Range> const& lifetime) {
        std::size_t steps = 0;
        for (Range const& range : lifetime) {
            steps += range.size();
        }
        return steps;
    }

    [[nodiscard]] static bool is_common_step(List<Range> const& a, List<Range> const& b) {
        for (std::size_t in_a = 0, in_b = 0; in_a < a.size() && in_b < b.size();) {
            if (!intersection(a[in_a], b[in_b]).is_empty()) {
                return true;
            }
            ++(a[in_a].end < b[in_b].end ? in_a : in_b);
        }
        return false;
    }

    template <class Visitor>
    void for_steps(LeaseBlock const& block, Visitor&& visit) const {
        for (Range const& steps : lifetime(block)) {
            for (std::size_t step = steps.begin; step < steps.end; ++step) {
                visit(step);
            }
        }
    }

    /// Returns the blocks in `_short` that are in flight together with this one, in the order of
    /// their places.
    [[nodiscard]] std::vector<std::size_t> short_conflicts_of(LeaseBlock const& block) {
        std::vector<std::size_t> conflicts;
        if (is_long(block)) {
            for (std::size_t const other : _short) {
                if (is_common_step(lifetime(_blocks[other]), lifetime(block))) {
                    conflicts.push_back(other);
                }
            }
        } else {
            for_steps(block, [&](std::size_t step) {
                for (std::size_t const other : _short_at[step]) {
                    if (!std::exchange(_is_found[other], true)) {
                        conflicts.push_back(other);
                    }
                }
            });
        }
        for (std::size_t const other : conflicts) {
            _is_found[other] = false;
        }
        return sorted_by(as_span(conflicts), [&](std::size_t other) { return _places[other]; });
    }

    /// Places the blocks for which `size` is largest first. @param order that breaks ties
    template <class Size>
    void place_by(std::vector<std::size_t> const& order, Size const& size) {
        _places.assign(_blocks.size(), 0);
        _elements = 0;
        _long.clear();
        _short.clear();
        _short_at = List<std::vector<std::size_t>>(_steps);
        for (std::size_t const block : sorted_by(
                 as_span(order), [&](std::size_t index) { return ~std::uint64_t{size(index)}; })) {
            place(block);
        }
    }

    void place(std::size_t index) {
        LeaseBlock const& block = _blocks[index];
        if (block.elements == 0) {
            return;
        }
        std::size_t& begin = _places[index];
        auto const is_gap_before = [&](std::size_t other) {
            return _places[other] >= begin + block.elements;
        };
        auto const pass = [&](std::size_t other) {
            begin = larger(begin, _places[other] + _blocks[other].elements);
        };
        std::vector<std::size_t> const conflicts = short_conflicts_of(block);
        std::size_t next = 0;
        for (std::size_t const other : _long) { // in the order of places, merged with `conflicts`
            for (; next < conflicts.size() && _places[conflicts[next]] <= _places[other]
                   && !is_gap_before(conflicts[next]);
                 ++next) {
                pass(conflicts[next]);
            }
            if (is_gap_before(other)) {
                break;
            }
            if (is_common_step(lifetime(_blocks[other]), lifetime(block))) {
                pass(other);
            }
        }
        for (; next < conflicts.size() && !is_gap_before(conflicts[next]); ++next) {
            pass(conflicts[next]);
        }
        _elements = larger(_elements, begin + block.elements);
        list(index);
    }

    /// Lists a placed block, so that later ones find it.
    void list(std::size_t index) {
        if (is_long(_blocks[index])) {
            std::size_t position = _long.size();
            _long.push_back(index);
            for (; position != 0 && _places[_long[position - 1]] > _places[index]; --position) {
                _long[position] = _long[position - 1];
            }
            _long[position] = index;
        } else {
            _short.push_back(index);
            for_steps(_blocks[index], [&](std::size_t step) { _short_at[step].push_back(index); });
        }
    }

    /// Returns whether a block is in flight for many steps. It is then compared with every other
    /// block instead of being listed at every step.
    [[nodiscard]] bool is_long(LeaseBlock const& block) const {
        return steps_of(lifetime(block)) > 8;
    }

    FlatLayout const* _layout;
    List<List<Range>> const* _lifetimes;
    std::size_t _steps;
    std::span<std::size_t const>
        _further; ///< by bucket: elements of its place after its own; or empty
    List<LeaseBlock> _blocks;
    std::size_t _most_in_flight = 0;          ///< elements at the peak
    std::size_t _peak = 0;                    ///< the first step with the most elements
    std::vector<std::size_t> _places;         ///< by block: its first element
    std::size_t _elements = 0;                ///< the end of the last place
    std::vector<std::size_t> _long;           ///< placed, in the order of places
    std::vector<std::size_t> _short;          ///< the other placed blocks
    List<std::vector<std::size_t>> _short_at; ///< the same, by step
    std::vector<char> _is_found;              ///< by block, during a search
};

ZERO_COLD_INLINE LeasePlan place_leases(FlatLayout const& layout,
                                        List<List<Range>> const& lifetimes, std::size_t steps,
                                        std::size_t spares, std::span<std::size_t const> further) {
    return LeasePlacer(layout, lifetimes, steps, further).plan(spares);
}

} // namespace ZERO_NAMESPACE::detail
