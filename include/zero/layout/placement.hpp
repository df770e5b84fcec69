#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Where a model state lives. A transition is a collective: sharded to replicated is an
/// all-gather, partial to sharded a reduce-scatter, partial to replicated an all-reduce, replicated
/// to sharded a local slice.
enum class Placement : std::uint8_t {
    replicated, ///< every rank holds all of it
    sharded     ///< every rank holds its extent of every bucket
};

/// @brief A stage is the choice of which state is sharded (ZeRO, section 5: P_os, P_os+g,
/// P_os+g+p).
struct StageRow {
    Placement parameters;          ///< between uses
    Placement reduced_gradients;   ///< what a rank holds of the gradients once they are reduced
    Placement accumulation_buffer; ///< replicated: a full buffer to accumulate in, also for sums
                                   ///< over micro-steps before a reduction
    Placement optimizer_state;     ///< master weights and moments

    /// @brief Stage 3: units are gathered for their use.
    constexpr bool shards_parameters() const noexcept { return parameters == Placement::sharded; }

    /// @brief Stages 1 to 3: each rank updates what it owns.
    constexpr bool shards_optimizer() const noexcept {
        return optimizer_state == Placement::sharded;
    }
};

/// @brief What is sharded, by number of the stage.
inline constexpr std::array<StageRow, 4> stage_table{{
    {Placement::replicated, Placement::replicated, Placement::replicated, Placement::replicated},
    {Placement::replicated, Placement::sharded, Placement::replicated, Placement::sharded},
    {Placement::replicated, Placement::sharded, Placement::sharded, Placement::sharded},
    {Placement::sharded, Placement::sharded, Placement::sharded, Placement::sharded},
}};

/// @brief When gradients are reduced over the ranks.
enum class ReductionSchedule : std::uint8_t {
    boundary, ///< micro-steps are summed locally in a full accumulation buffer; one reduction per
              ///< step
    every_micro_step ///< each micro-step is reduced and added to the accumulation buffer
};

/// @brief The schedule of a stage unless one is asked for: at the boundary where the stage has a
/// full accumulation buffer anyway.
constexpr ReductionSchedule default_schedule(int stage) noexcept {
    bool const has_full_buffer =
        stage_table[static_cast<std::size_t>(stage)].accumulation_buffer == Placement::replicated;
    return has_full_buffer ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
}

/// @brief The row of a stage under a schedule: summing before the reduction needs a full buffer in
/// every stage.
constexpr StageRow stage_row(int stage, ReductionSchedule schedule) noexcept {
    StageRow row = stage_table[static_cast<std::size_t>(stage)];
    if (schedule == ReductionSchedule::boundary) {
        row.accumulation_buffer = Placement::replicated;
    }
    return row;
}

} // namespace ZERO_NAMESPACE
