#pragma once

#include "../../gradient_source.hpp"
#include "../../lease_plan.hpp"
#include "gather_order.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE LeasePlan plan_gradient_leases(FlatLayout const& layout, bool in_index_order,
                                                std::size_t spares, std::size_t type) {
    std::size_t const buckets = layout.trainable_buckets();
    std::vector<std::size_t> units_left(buckets, 0);
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets) {
                ++units_left[bucket];
            }
        }
    }
    detail::List<detail::List<Range>> lifetimes(layout.buckets());
    auto const open = [&](std::size_t bucket, std::size_t step) {
        if (layout.bucket(bucket).type == type && lifetimes[bucket].empty()
            && gradient_source(layout, bucket) == GradientSource::lease) {
            lifetimes[bucket].push_back({step, step});
        }
    };
    auto const start_reduction = [&](std::size_t bucket, std::size_t step) {
        if (!lifetimes[bucket].empty()) {
            lifetimes[bucket][0].end = step + 2; // it overlaps with one further unit
        }
    };
    std::size_t next = 0;
    std::size_t step = 0;
    for (std::size_t const unit : layout.unit_order()) {
        if (layout.unit_parameters(unit).empty()) {
            continue; // a number that was left out
        }
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            if (bucket < buckets) {
                open(bucket, step);
                --units_left[bucket];
                if (units_left[bucket] == 0 && !in_index_order) {
                    start_reduction(bucket, step);
                }
            }
        }
        for (; in_index_order && next < buckets && units_left[next] == 0; ++next) {
            start_reduction(next, step);
        }
        ++step;
    }
    std::vector<std::size_t> whole(layout.buckets(), 0);
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
        whole[bucket] = whole_gradient_elements(layout, bucket);
    }
    return detail::place_leases(layout, lifetimes, step + 1, spares, detail::as_span(whole));
}

ZERO_COLD_INLINE LeasePlan plan_gradient_sums(FlatLayout const& layout, std::size_t type) {
    LeasePlan plan;
    plan.places.resize(layout.buckets());
    detail::for_buckets(layout, {0, layout.trainable_buckets()}, type, [&](std::size_t bucket) {
        plan.places[bucket] = {plan.elements, plan.elements + layout.elements(bucket)};
        plan.elements = plan.places[bucket].end;
    });
    return plan;
}

namespace detail {

/// @brief Returns the units in the order in which a micro-step gathers them: the forward pass, the
/// backward pass, and the first unit of the next micro-step. A backward pass in the reverse order
/// has the same pairs of neighbours, so the forward pass then suffices.
ZERO_COLD_INLINE std::vector<std::size_t> gathered_order(FlatLayout const& layout) {
    std::vector<std::size_t> order = used_units(layout);
    std::size_t const used = order.size() / 2;
    bool is_reverse = true;
    for (std::size_t position = 0; position < used; ++position) {
        is_reverse = is_reverse && order[position] == order[2 * used - 1 - position];
    }
    if (is_reverse) {
        order.resize(used);
    } else {
        order.push_back(order.front());
    }
    return order;
}

/// @brief Returns the lifetimes of gathered buckets: step s lasts while the units at positions s
/// and s + 1 of `order` are gathered.
ZERO_COLD_INLINE List<List<Range>> gathered_lifetimes(FlatLayout const& layout,
                                                      std::vector<std::size_t> const& order,
                                                      std::size_t type) {
    List<List<Range>> lifetimes(layout.buckets());
    for (std::size_t position = 0; position < order.size(); ++position) {
        std::size_t const begin = position == 0 ? 0 : position - 1;
        std::size_t const end = larger(smaller(position + 1, order.size() - 1), std::size_t{1});
        for (std::size_t const bucket : layout.unit_buckets(order[position])) {
            List<Range>& lifetime = lifetimes[bucket];
            if (layout.bucket(bucket).type != type) {
                continue;
            }
            if (!lifetime.empty() && lifetime[lifetime.size() - 1].end >= begin) {
                lifetime[lifetime.size() - 1].end = end;
            } else {
                lifetime.push_back({begin, end});
            }
        }
    }
    return lifetimes;
}

} // namespace detail

ZERO_COLD_INLINE LeasePlan plan_parameter_leases(FlatLayout const& layout, StageRow const& row,
                                                 Storage storage, std::size_t spares,
                                                 std::size_t type, GatherOptions const& gather) {
    if (row.shards_parameters() && !gather.has_default_memory()) {
        return detail::plan_gathered(layout, gather, spares, type);
    }
    if (row.shards_parameters()) {
        std::vector<std::size_t> const order = detail::gathered_order(layout);
        return detail::place_leases(layout, detail::gathered_lifetimes(layout, order, type),
                                    order.size() + 1, spares);
    }
    LeasePlan plan;
    plan.places.resize(layout.buckets());
    auto const is_copied = [&](std::size_t bucket) {
        return layout.bucket(bucket).type == type && row.reduced_gradients == Placement::sharded
               && ((storage == Storage::scattered && layout.bucket(bucket).trainable)
                   || layout.bucket(bucket).is_staged);
    };
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (is_copied(bucket) && layout.elements(bucket) > plan.elements) {
            plan.elements = layout.elements(bucket);
            plan.peak = {bucket};
        }
    }
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        plan.places[bucket].end = is_copied(bucket) ? plan.elements : 0;
    }
    return plan;
}

} // namespace ZERO_NAMESPACE
