#pragma once

// The column of one stage in the table of the planner.

#include <zero/layout/chunk_places.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gradient_source.hpp>
#include <zero/layout/lease_share.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/memory_plan.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/exact_sum.hpp>
#include <zero/ops/tree_sum.hpp>
#include <zero/policy/gradient_reduction.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace planner {

/// One rank under one stage, with bfloat16 parameters, float master weights and AdamW.
struct Column {
    zero::MemoryPlan memory;
    zero::StepCommunication step;  ///< communication with the default schedule, or in a tree
    std::string leases;            ///< text: what sets the size of leases
    std::uint64_t tier_reads = 0;  ///< bytes that a step reads from a file, or from the host
    std::uint64_t tier_writes = 0; ///< bytes that it writes there
    std::size_t world = 1;         ///< ranks over which states are cut: those of a group

    /// Returns the bytes that a rank reads from the others in a step.
    [[nodiscard]] std::uint64_t read_bytes() const {
        return step.gathers.bytes + step.secondary.bytes + step.reductions.bytes
               + step.replicated.bytes + step.publishes.bytes;
    }
};

/// States in a file; see zero::FileTierOptions.
struct InFile {
    double ratio = 0;
    std::uint64_t chunk_bytes = std::uint64_t{12} << 20U;
    std::size_t depth = 8;
    std::size_t alignment = 4096; ///< of the disk
};

/// Moves states of a rank to a file and staging memory.
/// @param has_parameters whether its parameters are among them
inline zero::MemoryPlan with_states_in_file(zero::MemoryPlan memory, zero::FlatLayout const& layout,
                                            zero::StageRow const& row, std::size_t rank,
                                            InFile const& file, bool has_parameters) {
    if (file.ratio == 0) {
        return memory;
    }
    std::vector<zero::ChunkArrays> arrays(1);
    arrays[0].of = {{{{4, 0}}, {{4, 0}, {4, 0}}, {}}};
    if (has_parameters) arrays[0].of[2].push_back({2, 0});
    zero::ChunkPlaces places(layout, arrays, {file.chunk_bytes, file.ratio}, true,
                             [&](std::size_t bucket, std::vector<zero::Piece>& own) {
                                 zero::Range const updated =
                                     row.shards_optimizer()
                                         ? layout.extent(bucket, rank)
                                         : zero::Range{0, layout.elements(bucket)};
                                 layout.for_slices(bucket, updated, [&](zero::Piece const& piece) {
                                     own.push_back(piece);
                                 });
                             });
    std::vector<std::size_t> staging;
    for (std::size_t const bytes : places.requests()) {
        staging.push_back((bytes + file.alignment - 1) / file.alignment * file.alignment);
    }
    places.lay_out(staging, file.alignment, file.depth);
    places.add_to(memory);
    return memory;
}

/// Bytes of 64 elements in codes, in stages 1 to 3; 0: they are as they are.
struct Codes {
    std::size_t weights = 0;
    std::size_t gradients = 0; ///< inside a group
    std::size_t between = 0;   ///< sums of gradients between groups
    std::size_t errors = 0;    ///< of ErrorFeedback; 256: floats, 0: none are kept
    std::size_t frozen = 0;    ///< frozen parameters in stage 3

    friend bool operator==(Codes const&, Codes const&) = default;
};

/// Policies beside the default ones.
struct Policies {
    InFile file{};
    bool on_host = false;       ///< states of a device lie on its host, and the device updates
    bool delays_update = false; ///< of states in a file
    bool in_tree = false;       ///< zero::TreeReduction adds gradients
    std::size_t shard = 0;      ///< ranks of a group, in stages 1 to 3; 0: there are no groups
    std::size_t secondary = 0;  ///< ranks that share a copy of what stage 3 gathers; 0: none
    Codes codes{};

    std::optional<zero::ReductionSchedule> schedule{}; ///< default: that of the stage
    zero::SizeCappedBucketerOptions bucketer{};        ///< stages 0 to 2
    zero::GatherOptions gather{};                      ///< stage 3

    /// `GradientReductionOptions::one_micro_step`; its formula is for equal gradients and sums
    bool one_micro_step = false;
};

/// Moves all states of a rank that a stage may keep there to memory of the host.
inline void move_to_host(zero::MemoryPlan& memory, int stage) {
    using Kind = zero::BufferKind;
    memory.is_on_host = true;
    for (auto const& [kind, least_stage] : {std::pair(Kind::optimizer_state, 0),
                                            {Kind::master_weights, 0},
                                            {Kind::gradients, 2},
                                            {Kind::parameters, 3}}) {
        if (stage >= least_stage) {
            memory.tier_bytes += std::exchange(memory[kind], {}).bytes();
        }
    }
}

/// Counts what a step moves between a rank and its tier: an update reads and writes states, each
/// gather reads parameters, and the update writes them. Sums of gradients are written by the first
/// micro-step, read and written by the others, and read by norm and update.
inline void count_tier(Column& column, zero::MemoryPlan const& in_memory, std::size_t micro_steps) {
    using Kind = zero::BufferKind;
    auto const moved = [&](Kind kind) { // a ratio of a file applies to all of its kinds
        return in_memory[kind].bytes() - column.memory[kind].bytes();
    };
    std::uint64_t const states = moved(Kind::optimizer_state) + moved(Kind::master_weights);
    std::uint64_t const parameters = moved(Kind::parameters);
    std::uint64_t const sums = moved(Kind::gradients);
    column.tier_reads = states + 2 * micro_steps * parameters + (micro_steps + 1) * sums;
    column.tier_writes = states + parameters + micro_steps * sums;
}

/// Returns the seconds of that: a disk reads and writes in turn, a link moves both ways at once.
inline double tier_seconds(Column const& column, double bytes_per_second) {
    auto const reads = static_cast<double>(column.tier_reads);
    auto const writes = static_cast<double>(column.tier_writes);
    return (column.memory.is_on_host ? std::max(reads, writes) : reads + writes) / bytes_per_second;
}

/// The sums of a tree beside the accumulation buffer, which holds one if it has floats.
inline zero::MemoryRow held_sums(zero::LayoutTotals const& totals, std::size_t accumulate_bytes,
                                 std::size_t micro_steps) {
    std::size_t sums = zero::ops::TreeWalk::most_held(micro_steps, 1);
    sums -= sums != 0 && accumulate_bytes == sizeof(float) ? 1 : 0;
    std::size_t const bytes = sums * sizeof(float);
    return {bytes * totals.own_trainable_content,
            bytes * (totals.own_trainable_padded - totals.own_trainable_content), false};
}

/// Bytes of the buffer in which a rank rounds sums that it sends to other groups.
inline std::size_t replica_buffer_bytes(zero::FlatLayout const& layout, std::size_t element_bytes) {
    std::size_t largest = 0;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        largest = std::max(largest, layout.extent(bucket, 0).size());
    }
    return std::min(largest * element_bytes, zero::GradientReductionOptions{}.wire_bytes);
}

/// Replaces the rows of buffers and parameters that are in codes, and adds those between groups.
/// @param replicas the number of groups
inline void count_codes(zero::MemoryPlan& memory, zero::FlatLayout const& layout,
                        zero::LayoutTotals const& totals, zero::ElementSizes const& sizes,
                        Codes const& codes, std::size_t replicas) {
    using Kind = zero::BufferKind;
    std::size_t const wire_bytes = zero::GradientReductionOptions{}.wire_bytes;
    if (codes.gradients != 0) {
        memory[Kind::wire] = zero::plan_gradient_codes(layout, 0, codes.gradients, wire_bytes);
    }
    if (codes.between != 0) {
        memory[Kind::wire].content_bytes +=
            zero::plan_replica_codes(layout, 0, 0, replicas, codes.between, wire_bytes).bytes();
    } else if (replicas != 1 && sizes.accumulation != sizes.communication) {
        memory[Kind::wire].content_bytes += replica_buffer_bytes(layout, sizes.communication);
    }
    if (codes.errors != 0) {
        memory[Kind::gradient_errors] = zero::plan_gradient_errors(layout, codes.errors);
    }
    if (codes.weights != 0) {
        memory[Kind::weight_codes] = zero::plan_weight_codes(layout, codes.weights);
    }
    if (codes.frozen != 0) {
        zero::MemoryRow const kept = zero::plan_frozen_codes(layout, 0, codes.frozen);
        memory[Kind::parameters] = {
            totals.own_trainable_content * sizes.parameter + kept.content_bytes,
            (totals.own_trainable_padded - totals.own_trainable_content) * sizes.parameter
                + kept.padding_bytes};
        memory[Kind::weight_codes].content_bytes +=
            zero::plan_weight_codes(layout, codes.frozen, 0, true).bytes();
    }
}

/// Returns the options of a layout of bfloat16 parameters.
inline zero::LayoutOptions layout_options(int stage, std::size_t ranks,
                                          zero::GatherOptions const& gather) {
    return {.world = ranks,
            .element_bytes = 2,
            .buckets_inside_units = stage == 3,
            .keep_until_update = stage == 3 ? gather.keep_until_update : 0};
}

/// Returns the elements of the largest unit of stage 3, padding included.
inline std::size_t largest_unit(std::vector<zero::ParameterSpec> const& model, std::size_t ranks) {
    auto const layout = zero::make_layout<zero::ContiguousPartitioner, zero::UnitBucketer>(
        model, layout_options(3, ranks, {}));
    std::size_t most = 0;
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        std::size_t elements = 0;
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            elements += layout.elements(bucket);
        }
        most = std::max(most, elements);
    }
    return most;
}

/// @param accumulate_bytes bytes per accumulated gradient
/// @param micro_steps micro-steps of a step; in stage 3 each acquires every unit twice
inline Column plan(std::vector<zero::ParameterSpec> const& model, std::size_t ranks,
                   std::size_t accumulate_bytes, int stage, std::size_t micro_steps = 1,
                   Policies const& policies = {}) {
    auto const& [file, on_host, delays_update, in_tree, shard, secondary, codes_of_stages, chosen,
                 bucketer, gather, one_micro_step] = policies;
    std::size_t const world = stage == 0 || shard == 0 ? ranks : shard;
    Codes codes = stage == 0 ? Codes{} : codes_of_stages;
    codes.frozen = stage == 3 ? codes.frozen : 0;
    zero::LayoutOptions const options = layout_options(stage, world, gather);
    using Even = zero::ContiguousPartitioner;
    auto const layout =
        stage == 3 ? zero::make_layout<Even, zero::UnitBucketer>(model, options)
                   : zero::make_layout<Even, zero::SizeCappedBucketer>(model, options, bucketer);
    zero::ElementSizes const sizes{.parameter = 2,
                                   .gradient = 2,
                                   .communication = 2,
                                   .accumulation = accumulate_bytes,
                                   .master = 4,
                                   .optimizer_state = 8};
    auto const schedule = in_tree ? zero::ReductionSchedule::every_micro_step
                                  : chosen.value_or(zero::default_schedule(stage));
    auto const row = zero::stage_row(stage, schedule);
    // Counts for rank 0: extents of a bucket are equal, so no other rank has more.
    auto totals = zero::count_layout(
        layout, 0, row, zero::Storage::owned, 0, 0, 0,
        zero::GradientReductionOptions{}.wire_bytes / sizes.communication, gather);
    bool const sums_in_leases = one_micro_step && sizes.accumulation == sizes.gradient
                                && zero::can_sum_in_leases(layout, row);
    if (sums_in_leases) {
        totals.gradient_lease_elements = 0;
    }
    // Sums in another type are converted before they are sent.
    bool const has_wire =
        schedule == zero::ReductionSchedule::boundary && sizes.accumulation != sizes.communication;
    auto const memory = zero::plan_memory(row, totals, sizes, zero::Storage::owned, has_wire, 0);
    auto const leases = zero::describe_leases(layout, row, sizes, zero::Storage::owned, 0, 0,
                                              gather, sums_in_leases);
    std::vector<std::size_t> acquired; // forward and backward
    if (stage == 3) {
        for (std::size_t pass = 0; pass < 2 * micro_steps; ++pass) {
            for (std::size_t unit = 0; unit < layout.units(); ++unit) acquired.push_back(unit);
        }
    }
    // A step reduces the exact sum of squares and the index of the first gradient that is not
    // finite; in stage 3 also three integers that compare the order of units.
    std::size_t const minima = stage == 3 ? 4 : 1;
    zero::StepCommunicationOptions const calls{
        .sizes = sizes,
        .wire_elements =
            has_wire ? zero::GradientReductionOptions{}.wire_bytes / sizes.communication : 0,
        .control_calls = 1,
        .control_bytes = sizeof(std::int64_t) * (zero::ops::Inspection::count + minima),
        .gather = gather,
        .in_tree = in_tree,
        .secondary_ranks = secondary,
        .replicas = ranks / world,
        .weight_block_bytes = codes.weights,
        .frozen_block_bytes = codes.frozen,
        .gradient_block_bytes = codes.gradients,
        .replica_block_bytes = codes.between};
    auto const step =
        zero::count_step_communication(layout, 0, stage, schedule, micro_steps, acquired, calls);
    zero::MemoryPlan all = with_states_in_file(memory, layout, row, 0, file,
                                               row.shards_parameters() && !delays_update);
    if (delays_update) { // copies of gradients and parameters
        std::size_t const updated =
            row.shards_optimizer() ? totals.own_trainable_content : totals.trainable_content;
        all[zero::BufferKind::staging].content_bytes +=
            updated * (sizes.accumulation + sizes.parameter);
    }
    if (on_host) {
        move_to_host(all, stage);
    }
    if (in_tree) {
        all[zero::BufferKind::held_sums] = held_sums(totals, accumulate_bytes, micro_steps);
    }
    if (stage == 3 && secondary != 0) {
        all[zero::BufferKind::secondary_copies] =
            zero::plan_secondary_copies(layout, 0, secondary, sizes.parameter);
    }
    count_codes(all, layout, totals, sizes, codes, ranks / world);
    Column column{all, step, leases, 0, 0, world};
    count_tier(column, memory, micro_steps);
    return column;
}

} // namespace planner
