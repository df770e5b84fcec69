#pragma once

#include "../core/hash.hpp"
#include "bucketer.hpp"
#include "flat_layout.hpp"
#include "least_padding.hpp"
#include "order_by.hpp"
#include "partitioner.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero {

struct LayoutOptions {
    std::size_t world = 1;
    std::size_t element_bytes = 4;     ///< of the parameter type; a bucketer's cap is in bytes
    bool buckets_inside_units = false; ///< stage 3: what is gathered for a unit belongs to it alone
};

/// @brief Refuses what no layout can be made of. @throws InvalidArgument naming the parameter and the remedy.
inline void validate(std::span<ParameterSpec const> parameters, LayoutOptions const& options) {
    if (options.world == 0) {
        throw InvalidArgument("zero: world is 0; a layout needs at least one rank.");
    }
    if (options.element_bytes == 0) {
        throw InvalidArgument("zero: element_bytes is 0; give the size of the parameter type.");
    }
    std::vector<std::uint64_t> names; // their hashes
    std::size_t total = 0;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index];
        if (spec.name.empty()) {
            throw InvalidArgument("zero: parameter number " + std::to_string(index) + " has no name; give each a unique one.");
        }
        if (spec.units.empty()) {
            throw InvalidArgument("zero: parameter '" + spec.name + "' lists no unit; name the units that use it, in order of use.");
        }
        for (std::size_t const unit : spec.units) {
            if (std::count(spec.units.begin(), spec.units.end(), unit) != 1) {
                throw InvalidArgument("zero: parameter '" + spec.name + "' lists unit " + std::to_string(unit) + " twice; list it once.");
            }
            if (unit > parameters.size() * 16 + 4096) {
                throw InvalidArgument("zero: parameter '" + spec.name + "' lists unit " + std::to_string(unit)
                                      + "; units are numbered from 0 in order of use, without large gaps.");
            }
        }
        if (spec.elements > (std::numeric_limits<std::size_t>::max() >> 8U) - total) {
            throw InvalidArgument("zero: parameter '" + spec.name + "' makes the model larger than 2^56 elements.");
        }
        total += spec.elements;
        names.push_back(Hash().add(std::string_view(spec.name)).value());
    }
    std::vector<std::size_t> const order = detail::order_by(names);
    for (std::size_t first = 0; first < order.size(); ++first) {
        for (std::size_t second = first + 1; second < order.size() && names[order[first]] == names[order[second]]; ++second) {
            if (parameters[order[first]].name == parameters[order[second]].name) {
                throw InvalidArgument("zero: two parameters are named '" + parameters[order[first]].name
                                      + "'; names are unique. For a tied parameter register it once and list all its units.");
            }
        }
    }
}

namespace detail {

/// @brief Cuts a run of parameters (indices in gradient-ready order) into buckets: `visit(group)` for each.
template <class Bucketer, class Visitor>
void for_groups(std::span<ParameterSpec const> parameters, std::span<std::size_t const> run, typename Bucketer::Options bucketing,
                std::size_t element_bytes, Visitor&& visit) {
    std::vector<BucketItem> items;
    for (std::size_t const index : run) {
        items.push_back({round_up(parameters[index].elements, granularity), parameters[index].units.front()});
    }
    for (std::size_t begin = 0; begin < run.size();) {
        std::size_t const taken = Bucketer::take(std::span<BucketItem const>(items).subspan(begin), bucketing, element_bytes);
        if (taken == 0 || taken > run.size() - begin) {
            throw InvalidArgument("zero: the bucketer took " + std::to_string(taken) + " of " + std::to_string(run.size() - begin)
                                  + " parameters; it has to take at least one and at most all.");
        }
        visit(run.subspan(begin, taken));
        begin += taken;
    }
}

/// @brief Splits parameters in gradient-ready order into the runs that a bucket may be made of: a tied parameter alone, and inside
/// one unit if asked for.
template <class Visitor>
void for_runs(std::span<ParameterSpec const> parameters, std::span<std::size_t const> order, bool inside_units, Visitor&& visit) {
    for (std::size_t begin = 0; begin < order.size();) {
        auto const& first = parameters[order[begin]];
        std::size_t end = begin + 1;
        while (first.units.size() == 1 && end < order.size() && parameters[order[end]].units.size() == 1
               && (!inside_units || parameters[order[end]].units == first.units)) {
            ++end;
        }
        visit(order.subspan(begin, end - begin));
        begin = end;
    }
}

/// @brief Lets the partitioner place the pieces of one bucket.
template <class Partitioner>
BucketPlan place(std::vector<Piece> pieces, std::size_t world, typename Partitioner::State& state) {
    std::vector<PartitionItem> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        items.push_back({index, pieces[index].elements, 0});
    }
    BucketPlan bucket;
    bucket.cuts.resize(world + 1);
    Partitioner::partition(items, state, bucket.cuts);
    for (PartitionItem const& item : items) {
        bucket.pieces.push_back(pieces[item.index]);
        bucket.pieces.back().bucket_begin = item.offset;
    }
    return bucket;
}

/// @brief The indices of the trainable or the frozen parameters in gradient-ready order, which is reverse registration order.
inline std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters, bool trainable) {
    std::vector<std::size_t> order;
    for (std::size_t index = parameters.size(); index-- > 0;) {
        if (parameters[index].trainable == trainable) {
            order.push_back(index);
        }
    }
    return order;
}

/// @brief `values[positions[0]], values[positions[1]], ...`
inline std::vector<std::size_t> permuted(std::span<std::size_t const> values, std::span<std::size_t const> positions) {
    std::vector<std::size_t> result;
    std::vector<char> is_taken(values.size(), false);
    for (std::size_t const position : positions) {
        if (position < values.size() && !is_taken[position]) {
            is_taken[position] = true;
            result.push_back(values[position]);
        }
    }
    if (result.size() != values.size() || positions.size() != values.size()) {
        throw InvalidArgument("zero: the partitioner's order of " + std::to_string(values.size()) + " parameters lists "
                              + std::to_string(positions.size()) + " numbers, " + std::to_string(result.size())
                              + " of them valid and for the first time; it has to list each number below " + std::to_string(values.size())
                              + " once.");
    }
    return result;
}

/// @brief All trainable or all frozen parameters before they are put into buckets.
template <class Partitioner>
struct PartitionGroup {
    std::vector<std::size_t> order; ///< in which buckets are filled
    typename Partitioner::State state;
};

template <class Partitioner>
PartitionGroup<Partitioner> begin_group(std::span<ParameterSpec const> parameters, bool trainable, std::size_t world) {
    std::vector<std::size_t> order = ready_order(parameters, trainable);
    auto const sizes = [&] {
        std::vector<std::size_t> elements;
        for (std::size_t const index : order) {
            elements.push_back(parameters[index].elements);
        }
        return elements;
    };
    if constexpr (OrderingPartitioner<Partitioner>) {
        order = permuted(order, Partitioner::order(sizes(), world));
    }
    auto state = Partitioner::begin(sizes(), world);
    return {std::move(order), std::move(state)};
}

/// @brief Buckets of whole parameters for one group.
template <class Partitioner, class Bucketer>
void append_buckets(std::vector<BucketPlan>& buckets, std::span<ParameterSpec const> parameters, bool trainable,
                    LayoutOptions const& options, typename Bucketer::Options bucketing, PartitionGroup<Partitioner> const& group) {
    auto state = group.state;
    for_runs(parameters, group.order, options.buckets_inside_units, [&](std::span<std::size_t const> run) {
        for_groups<Bucketer>(parameters, run, bucketing, options.element_bytes, [&](std::span<std::size_t const> members) {
            std::vector<Piece> pieces;
            for (std::size_t const index : members) {
                pieces.push_back({index, 0, 0, parameters[index].elements});
            }
            buckets.push_back(place<Partitioner>(std::move(pieces), options.world, state));
            buckets.back().trainable = trainable;
        });
    });
}

} // namespace detail

/// @brief The geometry for parameters whose memory the engine owns, or that are scattered over the caller's memory.
/// @param bucketing by value: g++ 12 takes a reference to options without members for a use of uninitialised memory
/// @throws InvalidArgument, see `validate`.
template <class Partitioner, class Bucketer>
FlatLayout make_layout(std::vector<ParameterSpec> parameters, LayoutOptions const& options,
                       typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    validate(parameters, options);
    Bucketer::validate(bucketing);
    auto const trainable = detail::begin_group<Partitioner>(parameters, true, options.world);
    auto const frozen = detail::begin_group<Partitioner>(parameters, false, options.world);
    auto buckets = detail::plan_buckets<Bucketer>(bucketing, options.element_bytes, [&](typename Bucketer::Options tried) {
        std::vector<BucketPlan> plans;
        detail::append_buckets<Partitioner, Bucketer>(plans, parameters, true, options, tried, trainable);
        detail::append_buckets<Partitioner, Bucketer>(plans, parameters, false, options, tried, frozen);
        return plans;
    });
    return {std::move(parameters), options.world, std::move(buckets)};
}

} // namespace zero
