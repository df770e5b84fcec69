#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/require_rank.hpp"
#include "flat_layout.hpp"
#include "placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief Elements that are read from other ranks, by kind of collective. Control traffic (norm,
/// layout hash, first broadcast) is not in it.
struct Traffic {
    std::uint64_t reduce_scatter = 0; ///< of gradients
    std::uint64_t all_gather = 0;     ///< of parameters
    std::uint64_t all_reduce = 0;     ///< of gradients, in stage 0

    /// @brief Of all kinds.
    [[nodiscard]] constexpr std::uint64_t total() const noexcept {
        return reduce_scatter + all_gather + all_reduce;
    }
    friend constexpr bool operator==(Traffic, Traffic) = default;
};

/// @brief The formulas of one optimizer step (ZeRO, section 7): elements that one rank reads from
/// the others.
///
/// Summed over ranks, with P' the trainable elements with padding, stages 0 to 2 move 2 P' (W - 1):
/// an all-reduce of gradients, or their reduce-scatter and an all-gather of parameters; each
/// further reduction in an accumulation adds P' (W - 1). Stage 3 gathers each unit whenever it is
/// acquired and moves no parameters at the end of the step. A rank has 1 / W of it when its shards
/// are equal.
/// @param micro_steps accumulated micro-steps in the step
/// @param acquired_units every unit that was acquired during the step, once per acquisition (stage
/// 3 only)
/// @throws InvalidArgument when there is no such rank
inline Traffic step_traffic_of_rank(FlatLayout const& layout, std::size_t rank, int stage,
                                    ReductionSchedule schedule, std::size_t micro_steps,
                                    std::span<std::size_t const> acquired_units) {
    detail::require_rank(layout, rank);
    std::uint64_t reduced = 0;  // every rank reads its own extents of the others ...
    std::uint64_t gathered = 0; // ... and the others' extents
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
    for (std::size_t const unit : stage == 3 ? acquired_units : std::span<std::size_t const>()) {
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            traffic.all_gather += layout.elements(bucket) - layout.extent(bucket, rank).size();
        }
    }
    return traffic;
}

/// @brief The same, summed over all ranks.
inline Traffic step_traffic(FlatLayout const& layout, int stage, ReductionSchedule schedule,
                            std::size_t micro_steps, std::span<std::size_t const> acquired_units) {
    Traffic sum;
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        Traffic const own =
            step_traffic_of_rank(layout, rank, stage, schedule, micro_steps, acquired_units);
        sum.reduce_scatter += own.reduce_scatter;
        sum.all_gather += own.all_gather;
        sum.all_reduce += own.all_reduce;
    }
    return sum;
}

} // namespace ZERO_NAMESPACE
