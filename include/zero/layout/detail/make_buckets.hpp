#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../bucket_plan.hpp"
#include "../bucketer.hpp"
#include "../layout_options.hpp"
#include "../padding.hpp"
#include "../parameter_spec.hpp"
#include "../partitioner.hpp"
#include "../piece.hpp"
#include "../range.hpp"
#include "order_by.hpp"
#include "partition_check.hpp"
#include "ready_order.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Cuts a run of parameters (indices in gradient-ready order) into buckets: `visit(group)`
/// for each.
template <class Bucketer, class Visitor>
void for_groups(std::span<ParameterSpec const> parameters, std::span<std::size_t const> run,
                typename Bucketer::Options bucketing, std::size_t element_bytes, Visitor&& visit) {
    List<BucketItem> items;
    for (std::size_t const index : run) {
        items.push_back(
            {round_up(parameters[index].elements, granularity), parameters[index].units.front()});
    }
    for (std::size_t begin = 0; begin < run.size();) {
        std::size_t const taken =
            Bucketer::take(as_span(items).subspan(begin), bucketing, element_bytes);
        if (taken == 0 || taken > run.size() - begin) {
            detail::throw_error<InvalidArgument>(
                {"zero: the bucketer took ", taken, " of ", run.size() - begin,
                 " parameters; it has to take at least one and at most all."});
        }
        visit(run.subspan(begin, taken));
        begin += taken;
    }
}

/// @brief Splits parameters in gradient-ready order into the runs that a bucket may be made of: a
/// tied parameter alone, and inside one unit if asked for.
template <class Visitor>
void for_runs(std::span<ParameterSpec const> parameters, std::span<std::size_t const> order,
              bool inside_units, Visitor&& visit) {
    for (std::size_t begin = 0; begin < order.size();) {
        auto const& first = parameters[order[begin]];
        std::size_t end = begin + 1;
        while (first.units.size() == 1 && end < order.size()
               && parameters[order[end]].units.size() == 1
               && (!inside_units || parameters[order[end]].units == first.units)) {
            ++end;
        }
        visit(order.subspan(begin, end - begin));
        begin = end;
    }
}

/// @brief Lets the partitioner place the pieces of one bucket. @throws InvalidArgument when it does
/// not keep to its contract
template <class Partitioner>
BucketPlan place(std::span<ParameterSpec const> parameters, std::vector<Piece> pieces,
                 std::size_t world, typename Partitioner::State& state) {
    List<PartitionItem> items;
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        items.push_back({index, pieces[index].elements, 0});
    }
    BucketPlan bucket;
    bucket.cuts.resize(world + 1);
    Partitioner::partition(std::span<PartitionItem>(items.data(), items.size()), state,
                           bucket.cuts);
    require_partition(parameters, as_span(pieces), as_span(items), bucket.cuts,
                      {Partitioner::cuts_parameters, Partitioner::is_even});
    for (PartitionItem const& item : items) {
        bucket.pieces.push_back(pieces[item.index]);
        bucket.pieces.back().bucket_begin = item.offset;
    }
    return bucket;
}

/// @brief Parameters that may share buckets.
struct Kind {
    bool trainable = true;
    std::size_t type = 0;
};

/// @brief The indices of the parameters of a kind in gradient-ready order.
inline std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters, Kind kind,
                                            std::span<std::size_t const> unit_order) {
    std::vector<std::size_t> order;
    for (std::size_t const index : parameters_in_ready_order(parameters, unit_order)) {
        if (parameters[index].trainable == kind.trainable && parameters[index].type == kind.type) {
            order.push_back(index);
        }
    }
    return order;
}

/// @brief `values[positions[0]], values[positions[1]], ...`
inline std::vector<std::size_t> permuted(std::span<std::size_t const> values,
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
        detail::throw_error<InvalidArgument>(
            {"zero: the partitioner's order of ", values.size(), " parameters lists ",
             positions.size(), " numbers, ", result.size(),
             " of them valid and for the first time; it has to list each number below ",
             values.size(), " once."});
    }
    return result;
}

/// @brief All parameters of a kind before they are put into buckets.
template <class Partitioner>
struct PartitionGroup {
    std::vector<std::size_t> order; ///< in which buckets are filled
    typename Partitioner::State state;
};

template <class Partitioner>
PartitionGroup<Partitioner> begin_group(std::span<ParameterSpec const> parameters, Kind kind,
                                        LayoutOptions const& options) {
    std::size_t const world = options.world;
    std::vector<std::size_t> order = ready_order(parameters, kind, options.unit_order);
    auto const sizes = [&] {
        std::vector<std::size_t> elements;
        elements.reserve(order.size());
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
std::vector<BucketPlan> make_buckets(std::span<ParameterSpec const> parameters, Kind kind,
                                     LayoutOptions const& options,
                                     typename Bucketer::Options bucketing) {
    auto const group = begin_group<Partitioner>(parameters, kind, options);
    std::size_t const bytes = options.bytes_of(kind.type);
    std::vector<BucketPlan> buckets;
    auto state = group.state;
    for_runs(parameters, group.order, options.buckets_inside_units,
             [&](std::span<std::size_t const> run) {
                 for_groups<Bucketer>(
                     parameters, run, bucketing, bytes, [&](std::span<std::size_t const> members) {
                         std::vector<Piece> pieces;
                         for (std::size_t const index : members) {
                             pieces.push_back({index, 0, 0, parameters[index].elements});
                         }
                         buckets.push_back(place<Partitioner>(parameters, std::move(pieces),
                                                              options.world, state));
                         buckets.back().trainable = kind.trainable;
                         buckets.back().type = kind.type;
                     });
             });
    return buckets;
}

/// @brief Buckets of several types in the order in which they get complete: by the last parameter
/// that each waits for.
/// @param order all parameters in gradient-ready order
inline std::vector<BucketPlan> merge_by_readiness(std::vector<BucketPlan> const& buckets,
                                                  std::span<std::size_t const> order) {
    std::vector<std::size_t> position(order.size());
    for (std::size_t index = 0; index < order.size(); ++index) {
        position[order[index]] = index;
    }
    std::vector<std::uint64_t> complete;
    for (BucketPlan const& bucket : buckets) {
        std::uint64_t last = 0;
        for (Piece const& piece : bucket.pieces) {
            last = larger(last, std::uint64_t{position[piece.parameter]});
        }
        complete.push_back(last);
    }
    std::vector<BucketPlan> ordered;
    for (std::size_t const index : order_by(complete)) {
        ordered.push_back(buckets[index]);
    }
    return ordered;
}

} // namespace ZERO_NAMESPACE::detail
