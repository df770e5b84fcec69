#pragma once

// The column of one stage in the table of the planner.

#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace planner {

/// One rank under one stage, with bfloat16 parameters, float master weights and AdamW.
struct Column {
    zero::MemoryPlan memory;
    std::uint64_t read_bytes; ///< from other ranks in a step of one micro-step
    std::string leases;       ///< what sets their size
};

/// @param accumulate_bytes per gradient
inline Column plan(std::vector<zero::ParameterSpec> const& model, std::size_t ranks,
                   std::size_t accumulate_bytes, int stage) {
    zero::LayoutOptions const options{
        .world = ranks, .element_bytes = 2, .buckets_inside_units = stage == 3};
    auto const layout =
        stage == 3
            ? zero::make_layout<zero::ContiguousPartitioner, zero::UnitBucketer>(model, options)
            : zero::make_layout<zero::ContiguousPartitioner, zero::SizeCappedBucketer>(model,
                                                                                       options);
    zero::ElementSizes const sizes{.parameter = 2,
                                   .gradient = 2,
                                   .communication = 2,
                                   .accumulation = accumulate_bytes,
                                   .master = 4,
                                   .optimizer_state = 8};
    auto const schedule = zero::default_schedule(stage);
    auto const row = zero::stage_row(stage, schedule);
    // Of rank 0: extents of a bucket are equal, so no other rank has more.
    auto const totals =
        zero::count_layout(layout, 0, row, zero::Storage::owned, 0, 0, 0,
                           zero::GradientReductionOptions{}.wire_bytes / sizes.communication);
    // Sums in another type are converted before they are sent.
    bool const has_wire =
        schedule == zero::ReductionSchedule::boundary && sizes.accumulation != sizes.communication;
    auto const memory = zero::plan_memory(row, totals, sizes, zero::Storage::owned, has_wire, 0);
    auto const leases = zero::describe_leases(layout, row, sizes, zero::Storage::owned);
    std::vector<std::size_t> acquired; // stage 3: each unit, forward and backward
    for (std::size_t unit = 0; unit < layout.units(); ++unit)
        acquired.insert(acquired.end(), {unit, unit});
    auto const traffic = zero::step_traffic_of_rank(layout, 0, stage, schedule, 1, acquired);
    return {memory, sizes.communication * traffic.total(), leases};
}

} // namespace planner
