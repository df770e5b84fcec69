#pragma once

#include <zero/layout/memory_plan.hpp>
#include <zero/layout/parameter_spec.hpp>

#include <string>

namespace zero::test {

/// @brief Returns "parameters 516+508, ...": content and padding of each non-empty row, in the
/// order of `BufferKind`.
inline std::string text_of(MemoryPlan const& plan) {
    std::string text;
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        MemoryRow const& row = plan.rows[kind];
        if (row.bytes() != 0) {
            text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<BufferKind>(kind)))
                    + (row.is_callers ? " (caller's) " : " ") + std::to_string(row.content_bytes)
                    + "+" + std::to_string(row.padding_bytes);
        }
    }
    return text;
}

/// @brief Returns the plan of one rank under the default schedule of the stage, without control
/// memory.
inline MemoryPlan default_plan(FlatLayout const& layout, std::size_t rank, int stage,
                               ElementSizes const& sizes, Storage storage = Storage::owned,
                               bool has_wire = false, std::size_t extra_leases = 0) {
    StageRow const row = stage_row(stage, stage < 2 ? ReductionSchedule::boundary
                                                    : ReductionSchedule::every_micro_step);
    return plan_memory(row, count_layout(layout, rank, row, storage, extra_leases), sizes, storage,
                       has_wire, 0);
}

} // namespace zero::test
