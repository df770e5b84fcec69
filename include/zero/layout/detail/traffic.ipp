#pragma once

#include "../traffic.hpp"
#include "count_gathers.hpp"
#include "require_rank.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE Traffic step_traffic_of_rank(FlatLayout const& layout, std::size_t rank, int stage,
                                              ReductionSchedule schedule, std::size_t micro_steps,
                                              std::span<std::size_t const> acquired_units,
                                              GatherOptions const& gather) {
    detail::require_rank(layout, rank);
    std::uint64_t reduced = 0;  // this rank's extents, read from each other rank
    std::uint64_t gathered = 0; // the extents of the other ranks
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        std::size_t const own = layout.extent(bucket, rank).size();
        reduced += own * (layout.world() - 1);
        gathered += layout.elements(bucket) - own;
    }
    std::uint64_t const reductions = schedule == ReductionSchedule::boundary ? 1 : micro_steps;
    Traffic traffic;
    if (stage == 0 && reductions == 1) {
        traffic.all_reduce = reduced + gathered;
        return traffic;
    }
    traffic.reduce_scatter = reductions * reduced;
    traffic.all_gather = stage == 3 ? 0 : gathered;
    if (stage == 3) {
        auto const counts = detail::count_gathers(layout, micro_steps, acquired_units, gather);
        for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
            traffic.all_gather +=
                counts[bucket] * (layout.elements(bucket) - layout.extent(bucket, rank).size());
        }
    }
    return traffic;
}

ZERO_COLD_INLINE Traffic step_traffic(FlatLayout const& layout, int stage,
                                      ReductionSchedule schedule, std::size_t micro_steps,
                                      std::span<std::size_t const> acquired_units,
                                      GatherOptions const& gather) {
    Traffic sum;
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        Traffic const own = step_traffic_of_rank(layout, rank, stage, schedule, micro_steps,
                                                 acquired_units, gather);
        sum.reduce_scatter += own.reduce_scatter;
        sum.all_gather += own.all_gather;
        sum.all_reduce += own.all_reduce;
    }
    return sum;
}

} // namespace ZERO_NAMESPACE
