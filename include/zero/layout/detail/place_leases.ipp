#pragma once

#include "../../core/hash.hpp"
#include "../padding.hpp"
#include "order_by.hpp"
#include "place_leases.hpp"

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
    LeasePlacer(FlatLayout const& layout, List<List<Range>> const& lifetimes, std::size_t steps)
        : _layout(&layout), _lifetimes(&lifetimes), _steps(steps) {
        group();
        _is_found.assign(_blocks.size(), false);
        std::vector<std::uint64_t> begins;
        std::vector<std::uint64_t> sizes;
        std::vector<std::uint64_t> durations;
        for (LeaseBlock const& block : _blocks) {
            begins.push_back(lifetime(block)[0].begin);
            sizes.push_back(~std::uint64_t{block.elements});
            durations.push_back(~std::uint64_t{steps_of(lifetime(block))});
        }
        // Either order may leave gaps that the other fills. Ties keep the order of time.
        std::vector<std::size_t> const by_time = order_by(begins);
        place_in_order(by_time, sizes);
        std::vector<std::size_t> const places = _places;
        std::size_t const elements = _elements;
        place_in_order(by_time, durations);
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
        return padded_size(_layout->elements(bucket));
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

    /// Calls `visit(step)` for every step of a block.
    template <class Visitor>
    void for_steps(LeaseBlock const& block, Visitor&& visit) const {
        for (Range const& steps : lifetime(block)) {
            for (std::size_t step = steps.begin; step < steps.end; ++step) {
                visit(step);
            }
        }
    }

    /// Returns the blocks placed so far that are in flight together with this one.
    [[nodiscard]] std::vector<std::size_t> conflicts_of(LeaseBlock const& block) {
        std::vector<std::size_t> conflicts;
        auto const add = [&](std::size_t other) {
            if (!std::exchange(_is_found[other], true)) {
                conflicts.push_back(other);
            }
        };
        bool const is_long = steps_of(lifetime(block)) > longest_listed;
        for (std::size_t const other : is_long ? _placed : _long) {
            if (is_common_step(lifetime(_blocks[other]), lifetime(block))) {
                add(other);
            }
        }
        if (!is_long) {
            for_steps(block, [&](std::size_t step) {
                for (std::size_t const other : _placed_at[step]) {
                    add(other);
                }
            });
        }
        for (std::size_t const other : conflicts) {
            _is_found[other] = false;
        }
        return conflicts;
    }

    /// @param order the blocks, which are sorted further by `keys` of the same positions
    void place_in_order(std::vector<std::size_t> const& order,
                        std::vector<std::uint64_t> const& keys) {
        _places.assign(_blocks.size(), 0);
        _elements = 0;
        _placed.clear();
        _long.clear();
        _placed_at = List<std::vector<std::size_t>>(_steps);
        std::vector<std::uint64_t> ordered_keys;
        for (std::size_t const block : order) {
            ordered_keys.push_back(keys[block]);
        }
        for (std::size_t const position : order_by(ordered_keys)) {
            place(order[position]);
        }
    }

    void place(std::size_t index) {
        LeaseBlock const& block = _blocks[index];
        if (block.elements == 0) {
            return;
        }
        std::vector<std::size_t> const conflicts = conflicts_of(block);
        std::vector<std::uint64_t> begins;
        for (std::size_t const other : conflicts) {
            begins.push_back(_places[other]);
        }
        std::size_t& begin = _places[index];
        for (std::size_t const position : order_by(begins)) {
            std::size_t const other = conflicts[position];
            if (_places[other] >= begin + block.elements) {
                break; // the gap before it is large enough
            }
            begin = larger(begin, _places[other] + _blocks[other].elements);
        }
        _elements = larger(_elements, begin + block.elements);
        _placed.push_back(index);
        if (steps_of(lifetime(block)) > longest_listed) {
            _long.push_back(index);
        } else {
            for_steps(block, [&](std::size_t step) { _placed_at[step].push_back(index); });
        }
    }

    /// Blocks in flight for more steps than this are compared with every other block instead of
    /// being listed at every step.
    static constexpr std::size_t longest_listed = 8;

    FlatLayout const* _layout;
    List<List<Range>> const* _lifetimes;
    std::size_t _steps;
    List<LeaseBlock> _blocks;
    std::vector<std::size_t> _places;          ///< by block: its first element
    std::size_t _elements = 0;                 ///< the end of the last place
    std::vector<std::size_t> _placed;          ///< all placed blocks
    std::vector<std::size_t> _long;            ///< those in flight for many steps
    List<std::vector<std::size_t>> _placed_at; ///< by step: the others
    std::vector<char> _is_found;               ///< by block, during a search
};

ZERO_COLD_INLINE LeasePlan place_leases(FlatLayout const& layout,
                                        List<List<Range>> const& lifetimes, std::size_t steps,
                                        std::size_t spares) {
    return LeasePlacer(layout, lifetimes, steps).plan(spares);
}

} // namespace ZERO_NAMESPACE::detail
