#pragma once

#include "flat_layout.hpp"
#include "placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace zero {

/// @brief Elements that the ranks together read from each other, by kind of collective. Control traffic (norm, layout hash, first
/// broadcast) is not in it.
struct Traffic {
    std::uint64_t reduce_scatter = 0;
    std::uint64_t all_gather = 0;
    std::uint64_t all_reduce = 0;

    [[nodiscard]] constexpr std::uint64_t total() const noexcept { return reduce_scatter + all_gather + all_reduce; }
    friend constexpr bool operator==(Traffic, Traffic) = default;
};

/// @brief The formulas of one optimizer step (ZeRO, section 7), in elements summed over all ranks.
///
/// With P' the trainable elements with padding, stages 0 to 2 move 2 P' (W - 1): an all-reduce of gradients, or their reduce-scatter and
/// an all-gather of parameters; each further reduction in an accumulation adds P' (W - 1). Stage 3 gathers each unit whenever it is
/// acquired and moves no parameters at the end of the step.
/// @param micro_steps accumulated micro-steps in the step
/// @param acquired_units every unit that was acquired during the step, once per acquisition (stage 3 only)
inline Traffic step_traffic(FlatLayout const& layout, int stage, ReductionSchedule schedule, std::size_t micro_steps,
                            std::span<std::size_t const> acquired_units) {
    std::uint64_t const others = layout.world() - 1;
    std::uint64_t trainable = 0;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        trainable += layout.elements(bucket);
    }
    std::uint64_t const reductions = schedule == ReductionSchedule::boundary ? 1 : micro_steps;
    Traffic traffic;
    if (stage == 0 && reductions == 1) {
        traffic.all_reduce = 2 * trainable * others;
    } else {
        traffic.reduce_scatter = reductions * trainable * others;
        traffic.all_gather = stage == 3 ? 0 : trainable * others;
    }
    if (stage == 3) {
        for (std::size_t const unit : acquired_units) {
            for (std::size_t const bucket : layout.unit_buckets(unit)) {
                traffic.all_gather += layout.elements(bucket) * others;
            }
        }
    }
    return traffic;
}

} // namespace zero
