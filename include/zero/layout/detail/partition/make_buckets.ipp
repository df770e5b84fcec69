#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../contiguous_partitioner.hpp"
#include "../../padding.hpp"
#include "../../piece.hpp"
#include "make_buckets.hpp"
#include "order_by.hpp"
#include "partitioner_ref.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns how many of the first parameters of `order` may share a bucket.
ZERO_COLD_INLINE std::size_t count_shareable(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> order, bool inside_units,
                                             std::span<char const> is_spread) {
    ParameterSpec const& first = parameters[order[0]];
    std::size_t count = 1;
    while (first.units.size() == 1 && count < order.size()
           && parameters[order[count]].units.size() == 1
           && (is_spread.empty() || is_spread[order[count]] == is_spread[order[0]])
           && (!inside_units || parameters[order[count]].units == first.units)) {
        ++count;
    }
    return count;
}

/// @brief Divides parameters into buckets and calls `visit` with the members of each.
///
/// A bucket ends where the bucketer ends it, and before and after each tied parameter, which gets a
/// bucket of its own. Spread parameters and others do not share one.
/// @param order parameter indices in the order in which buckets are filled
/// @param inside_units a bucket also ends where the unit changes
/// @param is_spread by parameter; empty: none is
/// @throws InvalidArgument if the bucketer takes no parameter, or more than it was offered
ZERO_COLD_INLINE void for_bucket_members(std::span<ParameterSpec const> parameters,
                                         std::span<std::size_t const> order, bool inside_units,
                                         BucketerRef bucketer, std::size_t element_bytes,
                                         std::span<char const> is_spread,
                                         FunctionRef<std::span<std::size_t const>> visit) {
    while (!order.empty()) {
        std::size_t const shareable = count_shareable(parameters, order, inside_units, is_spread);
        List<BucketItem> items;
        for (std::size_t const index : order.first(shareable)) {
            items.push_back(
                {padded_size(parameters[index].elements), parameters[index].units.front()});
        }
        for (std::size_t begin = 0; begin < shareable;) {
            std::size_t const taken =
                bucketer.take(as_span(items).subspan(begin), bucketer.options, element_bytes);
            if (taken == 0 || taken > shareable - begin) {
                throw_error<InvalidArgument>(
                    {"zero: the bucketer took ", taken, " of ", shareable - begin,
                     " parameters; it must take at least one and at most all."});
            }
            visit(order.subspan(begin, taken));
            begin += taken;
        }
        order = order.subspan(shareable);
    }
}

/// @brief The group of a partitioner: parameters of one type, either trainable or frozen. Only
/// parameters of one group may share a bucket.
struct PartitionGroup {
    bool trainable = true;
    std::size_t type = 0;
};

/// @brief Returns the parameters of a group in gradient-ready order.
ZERO_COLD_INLINE std::vector<std::size_t> group_members(PartitionGroup group,
                                                        std::span<ParameterSpec const> parameters,
                                                        std::span<std::size_t const> unit_order) {
    std::vector<std::size_t> members;
    for (std::size_t const index : ready_order(parameters, unit_order)) {
        if (parameters[index].trainable == group.trainable
            && parameters[index].type == group.type) {
            members.push_back(index);
        }
    }
    return members;
}

/// @brief Returns a number of each of these parameters.
ZERO_COLD_INLINE std::vector<std::size_t> numbers_of(std::span<ParameterSpec const> parameters,
                                                     std::span<std::size_t const> indices,
                                                     std::size_t ParameterSpec::*number) {
    std::vector<std::size_t> numbers;
    for (std::size_t const index : indices) {
        numbers.push_back(parameters[index].*number);
    }
    return numbers;
}

/// @brief Returns `values[positions[0]], values[positions[1]], ...`
/// @throws InvalidArgument if `positions` is not a permutation
ZERO_COLD_INLINE std::vector<std::size_t> permuted(std::span<std::size_t const> values,
                                                   std::span<std::size_t const> positions) {
    std::vector<std::size_t> result;
    std::vector<char> is_taken(values.size(), false);
    for (std::size_t const position : positions) {
        if (position < values.size() && !is_taken[position]) {
            is_taken[position] = true;
            result.push_back(values[position]);
        }
    }
    if (result.size() != values.size() || positions.size() != values.size()) {
        throw_error<InvalidArgument>(
            {"zero: the partitioner's order of ", values.size(), " parameters lists ",
             positions.size(), " numbers, of which ", result.size(),
             " are indices not listed before; it must list each index below ", values.size(),
             " once."});
    }
    return result;
}

/// @brief Returns which parameters are persistent, by index (`GatherOptions`). Empty parameters
/// need no memory, so they are not persistent.
ZERO_COLD_INLINE std::vector<char> find_persistent(std::span<ParameterSpec const> parameters,
                                                   LayoutOptions const& options) {
    std::vector<char> is_persistent(parameters.size(), false);
    std::size_t left = options.max_persistent_elements;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        std::size_t const elements = parameters[index].elements;
        if (elements != 0 && elements <= options.persistence_threshold && elements <= left) {
            is_persistent[index] = true;
            left -= elements;
        }
    }
    return is_persistent;
}

/// @brief Moves the persistent parameters after the others, and keeps the order of both.
/// @return the number of the others
ZERO_COLD_INLINE std::size_t put_persistent_last(std::vector<std::size_t>& order,
                                                 std::span<char const> is_persistent) {
    std::vector<std::size_t> last;
    std::size_t others = 0;
    for (std::size_t const index : order) {
        if (is_persistent[index] != 0) {
            last.push_back(index);
        } else {
            order[others++] = index;
        }
    }
    for (std::size_t position = 0; position < last.size(); ++position) {
        order[others + position] = last[position];
    }
    return others;
}

/// @brief Appends the buckets of one group, in the order in which they are filled.
/// @param is_persistent by parameter
ZERO_COLD_INLINE void append_buckets(std::vector<BucketPlan>& buckets, PartitionGroup group,
                                     std::span<ParameterSpec const> parameters,
                                     LayoutOptions const& options,
                                     PartitionerRef const& partitioner, BucketerRef bucketer,
                                     std::span<char const> is_persistent) {
    std::vector<std::size_t> order = group_members(group, parameters, options.unit_order);
    if (partitioner.order != nullptr) {
        auto const sizes = numbers_of(parameters, order, &ParameterSpec::elements);
        order = permuted(order, partitioner.order(sizes, options.world));
    }
    std::size_t const others = put_persistent_last(order, is_persistent);
    auto const append_all = [&](void* state) {
        std::vector<char> is_spread(partitioner.is_spread == nullptr ? 0 : parameters.size());
        for (std::size_t position = 0; position < order.size() && !is_spread.empty(); ++position) {
            is_spread[order[position]] = static_cast<char>(partitioner.is_spread(state, position));
        }
        auto const append = [&](std::span<std::size_t const> members) {
            std::vector<Piece> pieces;
            for (std::size_t const index : members) {
                pieces.push_back({index, 0, 0, parameters[index].elements});
            }
            buckets.push_back(
                partition_bucket(parameters, as_span(pieces), options.world, partitioner, state));
            buckets.back().trainable = group.trainable;
            buckets.back().type = group.type;
        };
        for_bucket_members(parameters, as_span(order).first(others), options.buckets_inside_units,
                           bucketer, options.bytes_of(group.type), as_span(is_spread), append);
        if (others != order.size()) { // one bucket, so that one all-gather fetches all of them
            append(as_span(order).subspan(others));
            buckets.back().is_persistent = true;
        }
    };
    partitioner.with_state(numbers_of(parameters, order, &ParameterSpec::elements),
                           numbers_of(parameters, order, &ParameterSpec::rows), options.world,
                           partitioner.options, append_all);
}

/// @brief Returns the buckets of several types, and those of persistent parameters, in the order in
/// which they become complete: the end of a micro-step sends buckets by number, and memory is
/// planned for it. A bucket is complete with the last of its parameters; one of persistent
/// parameters follows the others of its last unit.
ZERO_COLD_INLINE std::vector<BucketPlan>
merge_by_readiness(std::span<BucketPlan const> buckets, std::span<ParameterSpec const> parameters,
                   std::span<std::size_t const> unit_order) {
    std::vector<std::size_t> const order = ready_order(parameters, unit_order);
    std::vector<std::uint64_t> const times = complete_times(parameters, unit_order);
    std::vector<std::size_t> position(order.size());
    for (std::size_t index = 0; index < order.size(); ++index) {
        position[order[index]] = index;
    }
    return sorted_by(buckets, [&](BucketPlan const& bucket) {
        std::uint64_t last = 0;
        for (Piece const& piece : bucket.pieces) {
            last = larger(last, std::uint64_t{position[piece.parameter]});
        }
        while (bucket.is_persistent && last + 1 < order.size()
               && times[order[last + 1]] == times[order[last]]) {
            ++last;
        }
        return 2 * last + (bucket.is_persistent ? 1 : 0);
    });
}

/// @brief Makes the buckets of the units that are kept until the update persistent
/// (`GatherOptions::keep_until_update`).
/// @param most elements of these units
ZERO_COLD_INLINE void keep_units(std::vector<BucketPlan>& buckets,
                                 std::span<ParameterSpec const> parameters, std::size_t most) {
    std::vector<std::vector<std::size_t>> units; // the buckets of each
    for (std::size_t index = 0; most != 0 && index < buckets.size(); ++index) {
        for (Piece const& piece : buckets[index].pieces) {
            for (std::size_t const unit : parameters[piece.parameter].units) {
                units.resize(larger(units.size(), unit + 1));
                if (units[unit].empty() || units[unit].back() != index) {
                    units[unit].push_back(index);
                }
            }
        }
    }
    for (std::vector<std::size_t> const& unit : units) {
        std::size_t elements = 0;
        for (std::size_t const index : unit) {
            for (Piece const& piece : buckets[index].pieces) {
                elements += buckets[index].is_persistent ? 0 : piece.elements;
            }
        }
        if (elements > most) {
            return;
        }
        most -= elements;
        for (std::size_t const index : unit) {
            buckets[index].is_persistent = true;
        }
    }
}

ZERO_COLD_INLINE std::vector<BucketPlan> make_buckets(std::span<ParameterSpec const> parameters,
                                                      LayoutOptions const& options,
                                                      PartitionerRef const& partitioner,
                                                      BucketerRef bucketer) {
    validate_parameters(parameters, options);
    bucketer.validate(bucketer.options);
    std::vector<char> const is_persistent = find_persistent(parameters, options);
    std::vector<BucketPlan> buckets;
    for (bool const trainable : {true, false}) {
        std::vector<BucketPlan> found;
        for (std::size_t type = 0; type < options.types(); ++type) {
            append_buckets(found, {trainable, type}, parameters, options, partitioner, bucketer,
                           as_span(is_persistent));
        }
        bool const has_persistent = !found.empty() && found.back().is_persistent;
        if (options.types() > 1 || has_persistent) {
            found = merge_by_readiness(as_span(found), parameters, options.unit_order);
        }
        for (BucketPlan& bucket : found) {
            buckets.push_back(std::move(bucket));
        }
    }
    keep_units(buckets, parameters, options.keep_until_update);
    return buckets;
}

/// @brief Cuts an adopted block into buckets.
///
/// It cuts one stretch of adjacent trainable parameters after another. A stretch is a list of
/// parameters without a gap between them, in descending order of address, which is gradient-ready
/// order.
class AdoptedBlock {
public:
    AdoptedBlock(std::span<ParameterSpec const> parameters, std::span<std::size_t const> offsets,
                 std::size_t world)
        : _parameters(parameters), _offsets(offsets), _world(world) {}

    /// @brief Returns where a parameter is in the block.
    [[nodiscard]] Range range(std::size_t index) const {
        return {_offsets[index], _offsets[index] + _parameters[index].elements};
    }

    /// @brief Makes direct buckets of the parts between multiples of W * `granularity`, and
    /// collects the ends of the stretch for the staged bucket.
    void cut(std::span<std::size_t const> stretch, BucketerRef bucketer,
             std::size_t element_bytes) {
        std::size_t const step = _world * granularity;
        Range const whole{range(stretch.back()).begin, range(stretch.front()).end};
        Range const body{round_up(whole.begin, step), round_down(whole.end, step)};
        if (body.begin >= body.end) {
            add_staged(stretch, whole);
            return;
        }
        add_staged(stretch, {body.end, whole.end});
        std::size_t const most = larger(step, round_down(bucketer.capacity / element_bytes, step));
        std::size_t top = body.end;
        auto const add = [&](std::span<std::size_t const> members) {
            std::size_t const bottom =
                larger(body.begin, round_down(range(members.back()).begin, step));
            while (bottom < top) {
                std::size_t const begin = top - smaller(top - bottom, most);
                add_direct_bucket(stretch, {begin, top});
                top = begin;
            }
        };
        for_bucket_members(_parameters, stretch, false, bucketer, element_bytes, {}, add);
        add_staged(stretch, {whole.begin, body.begin});
    }

    /// @brief Returns the direct buckets, then the staged one if there is any.
    [[nodiscard]] std::vector<BucketPlan> finish() && {
        if (!_staged.empty()) {
            ContiguousPartitioner::State state;
            _buckets.push_back(partition_bucket(_parameters, as_span(_staged), _world,
                                                partitioner_ref<ContiguousPartitioner>(), &state));
            _buckets.back().is_staged = true;
        }
        return std::move(_buckets);
    }

private:
    /// @brief Returns the pieces of a stretch inside `part` of the block, in ascending order.
    /// O(log stretch + pieces).
    [[nodiscard]] std::vector<Piece> pieces(std::span<std::size_t const> stretch,
                                            Range part) const {
        std::size_t first = 0; // all parameters before it begin after the part
        for (std::size_t left = stretch.size(); left != 0;) {
            std::size_t const half = left / 2;
            bool const is_behind = range(stretch[first + half]).begin >= part.end;
            first += is_behind ? half + 1 : 0;
            left = is_behind ? left - half - 1 : half;
        }
        std::size_t last = first;
        while (last < stretch.size() && range(stretch[last]).end > part.begin) {
            ++last;
        }
        std::vector<Piece> pieces;
        for (std::size_t position = last; position-- > first;) {
            std::size_t const index = stretch[position];
            Range const common = intersection(range(index), part);
            if (!common.is_empty()) {
                pieces.push_back({index, common.begin - _offsets[index], common.begin - part.begin,
                                  common.size()});
            }
        }
        return pieces;
    }

    void add_direct_bucket(std::span<std::size_t const> stretch, Range part) {
        BucketPlan bucket;
        bucket.pieces = pieces(stretch, part);
        bucket.block_begin = part.begin;
        bucket.extent = part.size() / _world;
        _buckets.push_back(std::move(bucket));
    }

    void add_staged(std::span<std::size_t const> stretch, Range part) {
        for (Piece const& piece : pieces(stretch, part)) {
            _staged.push_back(piece);
        }
    }

    std::span<ParameterSpec const> _parameters;
    std::span<std::size_t const> _offsets;
    std::size_t _world;
    std::vector<BucketPlan> _buckets;
    std::vector<Piece> _staged;
};

/// @brief Returns the parameters that have elements, in descending order of address.
ZERO_COLD_INLINE std::vector<std::size_t>
descending_order(std::span<ParameterSpec const> parameters, std::span<std::size_t const> offsets) {
    std::vector<std::size_t> const ascending =
        order_by(std::vector<std::uint64_t>(offsets.begin(), offsets.end()));
    std::vector<std::size_t> order;
    for (std::size_t position = ascending.size(); position-- > 0;) {
        if (parameters[ascending[position]].elements != 0) {
            order.push_back(ascending[position]);
        }
    }
    return order;
}

ZERO_COLD_INLINE std::vector<BucketPlan>
make_adopted_buckets(std::span<ParameterSpec const> parameters,
                     std::span<std::size_t const> offsets, LayoutOptions const& options,
                     BucketerRef bucketer) {
    validate_parameters(parameters, options);
    bucketer.validate(bucketer.options);
    if (!options.unit_order.empty()) {
        throw_error<InvalidArgument>(
            {"zero: unit_order would be ignored, because an adopted block is cut in the order of "
             "its addresses; leave it out."});
    }
    if (offsets.size() != parameters.size()) {
        throw_error<InvalidArgument>({"zero: ", offsets.size(), " offsets are given for ",
                                      parameters.size(),
                                      " parameters of an adopted block; give one each."});
    }
    AdoptedBlock block(parameters, offsets, options.world);
    std::vector<std::size_t> const order = descending_order(parameters, offsets);
    std::vector<std::size_t> stretch;
    auto const finish_stretch = [&] {
        if (!stretch.empty()) {
            block.cut(stretch, bucketer, options.element_bytes);
            stretch.clear();
        }
    };
    for (std::size_t position = 0; position < order.size(); ++position) {
        std::size_t const index = order[position];
        std::size_t const next =
            position == 0 ? block.range(index).end : offsets[order[position - 1]];
        if (block.range(index).end > next) {
            throw_error<InvalidArgument>(
                {"zero: parameters '", parameters[index].name, "' and '",
                 parameters[order[position - 1]].name,
                 "' overlap in the adopted block; for a tied parameter register it once and list "
                 "all its units."});
        }
        if (block.range(index).end < next) {
            finish_stretch();
        }
        if (parameters[index].trainable) {
            stretch.push_back(index);
        } else {
            finish_stretch();
        }
    }
    finish_stretch();
    return std::move(block).finish();
}

ZERO_COLD_INLINE std::vector<std::uint64_t>
complete_times(std::span<ParameterSpec const> parameters, std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> position(unit_order.size(), 0);
    for (std::size_t index = 0; index < unit_order.size(); ++index) {
        position[unit_order[index]] = index;
    }
    std::vector<std::uint64_t> times;
    for (ParameterSpec const& parameter : parameters) {
        std::uint64_t last = 0;
        for (std::size_t const unit : parameter.units) { // descending numbers ascend
            last = larger(last, position.empty() ? ~std::uint64_t{unit} : position[unit]);
        }
        times.push_back(last);
    }
    return times;
}

ZERO_COLD_INLINE std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                                      std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> const times = complete_times(parameters, unit_order);
    std::vector<std::uint64_t> const reversed(times.rbegin(), times.rend());
    std::vector<std::size_t> order = order_by(reversed);
    for (std::size_t& index : order) {
        index = parameters.size() - 1 - index;
    }
    return order;
}

} // namespace ZERO_NAMESPACE::detail
