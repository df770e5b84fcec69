#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../step_communication.hpp"
#include "../traffic.hpp"
#include "../wire_chunk.hpp"
#include "count_gathers.hpp"
#include "require_rank.hpp"

namespace ZERO_NAMESPACE {

namespace detail {

/// @brief Throws `InvalidArgument` unless the arguments of `count_step_communication` are in range.
ZERO_COLD_INLINE void require_step(FlatLayout const& layout, int stage, std::size_t micro_steps,
                                   std::span<std::size_t const> acquired_units) {
    if (stage < 0 || stage > 3) {
        throw_error<InvalidArgument>({"zero: there is no stage ", stage, "; stages are 0 to 3."});
    }
    if (micro_steps == 0) {
        throw_error<InvalidArgument>(
            {"zero: a step has at least one micro-step, and 'micro_steps' is 0."});
    }
    for (std::size_t const unit : acquired_units) {
        if (unit >= layout.units()) {
            throw_error<InvalidArgument>({"zero: there is no unit ", unit, "; the layout has ",
                                          layout.units(), " units, numbered from 0."});
        }
    }
}

} // namespace detail

ZERO_COLD_INLINE StepCommunication count_step_communication(
    FlatLayout const& layout, std::size_t rank, int stage, ReductionSchedule schedule,
    std::size_t micro_steps, std::span<std::size_t const> acquired_units,
    StepCommunicationOptions const& options) {
    detail::require_rank(layout, rank);
    detail::require_step(layout, stage, micro_steps, acquired_units);
    StepCommunication step;
    if (layout.world() == 1) { // nothing is sent
        return step;
    }
    std::uint64_t sent = 0;    // collectives that send all gradients once
    std::uint64_t buckets = 0; // collectives that gather all trainable buckets once
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        Cuts const cuts = layout.cuts(bucket);
        std::size_t const is_sent = cuts.back() == 0 ? 0 : 1;
        sent += options.wire_elements == 0 ? is_sent : wire_chunks(cuts, options.wire_elements);
        buckets += is_sent;
    }
    Traffic const traffic = step_traffic_of_rank(layout, rank, stage, schedule, micro_steps,
                                                 acquired_units, options.gather);
    ElementSizes const& sizes = options.sizes;
    std::uint64_t const reductions = schedule == ReductionSchedule::boundary ? 1 : micro_steps;
    step.reductions = {reductions * sent,
                       sizes.communication * (traffic.reduce_scatter + traffic.all_reduce)};
    if (stage == 0) {
        bool const is_all_reduce = reductions == 1;
        step.reductions.calls += is_all_reduce ? sent : buckets;
        step.reductions.bytes += sizes.accumulation * traffic.all_gather;
    } else if (stage == 3) {
        auto const counts =
            detail::count_gathers(layout, micro_steps, acquired_units, options.gather);
        for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
            step.gathers.calls += layout.elements(bucket) == 0 ? 0 : counts[bucket];
        }
        step.gathers.bytes = sizes.parameter * traffic.all_gather;
    } else {
        step.publishes = {buckets, sizes.parameter * traffic.all_gather};
    }
    step.control = {options.control_calls, options.control_bytes};
    return step;
}

} // namespace ZERO_NAMESPACE
