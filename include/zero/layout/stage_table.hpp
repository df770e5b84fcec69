#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Whether each rank holds all of a model state or only its shard.
///
/// A change of placement is a collective: sharded to replicated is an all-gather, partial sums to
/// sharded a reduce-scatter, partial sums to replicated an all-reduce. Replicated to sharded is a
/// local slice.
enum class Placement : std::uint8_t {
    replicated, ///< every rank holds all of it
    sharded     ///< every rank holds its extent of every bucket
};

/// @brief The placement of each model state in one stage (ZeRO, section 5: P_os, P_os+g,
/// P_os+g+p).
struct StageRow {
    Placement parameters;          ///< between uses
    Placement reduced_gradients;   ///< from the reduction until the update
    Placement accumulation_buffer; ///< replicated: a full buffer, which also holds sums over
                                   ///< micro-steps before their reduction
    Placement optimizer_state;     ///< master weights and moments

    /// @brief Returns whether units are gathered for their use (stage 3).
    constexpr bool shards_parameters() const noexcept { return parameters == Placement::sharded; }

    /// @brief Returns whether each rank updates only its shard (stages 1 to 3).
    constexpr bool shards_optimizer() const noexcept {
        return optimizer_state == Placement::sharded;
    }
};

/// @brief The placements of stages 0 to 3 under their default schedules, by stage.
inline constexpr std::array<StageRow, 4> stage_table{{
    {Placement::replicated, Placement::replicated, Placement::replicated, Placement::replicated},
    {Placement::replicated, Placement::sharded, Placement::replicated, Placement::sharded},
    {Placement::replicated, Placement::sharded, Placement::sharded, Placement::sharded},
    {Placement::sharded, Placement::sharded, Placement::sharded, Placement::sharded},
}};

/// @brief The time at which gradients are reduced over the ranks.
enum class ReductionSchedule : std::uint8_t {
    boundary, ///< once per step: micro-steps are first summed locally in a full accumulation buffer
    every_micro_step ///< in each micro-step, and the result is added to the accumulation buffer
};

/// @brief Returns the name of a schedule: "boundary" or "every_micro_step".
constexpr char const* name_of(ReductionSchedule schedule) noexcept {
    return schedule == ReductionSchedule::boundary ? "boundary" : "every_micro_step";
}

/// @brief Returns the default schedule of a stage: `boundary` if the stage has a full accumulation
/// buffer anyway.
constexpr ReductionSchedule default_schedule(int stage) noexcept {
    bool const has_full_buffer =
        stage_table[static_cast<std::size_t>(stage)].accumulation_buffer == Placement::replicated;
    return has_full_buffer ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
}

/// @brief Returns the placements of a stage under a schedule. `boundary` needs a full accumulation
/// buffer in every stage.
constexpr StageRow stage_row(int stage, ReductionSchedule schedule) noexcept {
    StageRow row = stage_table[static_cast<std::size_t>(stage)];
    if (schedule == ReductionSchedule::boundary) {
        row.accumulation_buffer = Placement::replicated;
    }
    return row;
}

} // namespace ZERO_NAMESPACE
