#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief Elements read from other ranks, per kind of collective. Excludes control traffic: the
/// norm, the layout hash and the first broadcast.
struct Traffic {
    std::uint64_t reduce_scatter = 0; ///< gradients
    std::uint64_t all_gather = 0;     ///< parameters; in stage 0, sums of gradients
    std::uint64_t all_reduce = 0;     ///< gradients in stage 0, with one reduction per step

    /// @brief Returns the sum over all kinds.
    [[nodiscard]] constexpr std::uint64_t total() const noexcept {
        return reduce_scatter + all_gather + all_reduce;
    }
    friend constexpr bool operator==(Traffic, Traffic) = default;
};

/// @brief Returns the elements that one rank reads from the others in one optimizer step (ZeRO,
/// section 7).
///
/// Let P' be the trainable elements, padding included. Summed over ranks, stages 0 to 2 move
/// 2 P' (W - 1) elements: an all-reduce of gradients, or a reduce-scatter of gradients and an
/// all-gather of parameters. Each further reduction in an accumulation adds P' (W - 1). Stage 3
/// gathers a unit each time it is acquired, and no parameters at the end of the step. If the shards
/// are equal, each rank reads 1 / W of the sum.
/// @param micro_steps micro-steps accumulated in the step
/// @param acquired_units the units acquired during the step, once per acquisition, the same in
/// every micro-step (stage 3 only)
/// @param gather the options of the stage. Persistent buckets are gathered once a step, and buckets
/// that are kept until their next acquisition are not gathered for it. The formula holds from the
/// second step on, as long as `max_live_elements` leaves room for what is kept.
/// @throws InvalidArgument if there is no such rank
Traffic step_traffic_of_rank(FlatLayout const& layout, std::size_t rank, int stage,
                             ReductionSchedule schedule, std::size_t micro_steps,
                             std::span<std::size_t const> acquired_units,
                             GatherOptions const& gather = {});

/// @brief Returns the sum of `step_traffic_of_rank` over all ranks.
Traffic step_traffic(FlatLayout const& layout, int stage, ReductionSchedule schedule,
                     std::size_t micro_steps, std::span<std::size_t const> acquired_units,
                     GatherOptions const& gather = {});

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/traffic.ipp"
#endif
