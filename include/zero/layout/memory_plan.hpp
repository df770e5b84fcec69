#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "element_sizes.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "padding.hpp"
#include "parameter_spec.hpp"
#include "piece.hpp"
#include "stage_table.hpp"
#include "wire_chunk.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief The elements of one type in a layout, from the point of view of one rank. `plan_memory`
/// needs nothing else of a layout.
struct LayoutTotals {
    std::size_t all_content = 0;           ///< parameters, frozen ones included
    std::size_t all_padded = 0;            ///< the same with padding
    std::size_t trainable_content = 0;     ///< trainable parameters
    std::size_t trainable_padded = 0;      ///< the same with padding
    std::size_t own_content = 0;           ///< this rank's extents of all buckets
    std::size_t own_padded = 0;            ///< the same with padding
    std::size_t own_trainable_content = 0; ///< this rank's extents of the trainable buckets
    std::size_t own_trainable_padded = 0;  ///< the same with padding

    /// @brief Blocks of 64 elements in the trainable slices of all ranks. Blocks are counted from
    /// the start of each slice, and the last block of a slice may be shorter.
    std::size_t trainable_blocks = 0;

    std::size_t own_trainable_blocks = 0;    ///< the same in this rank's extents
    std::size_t largest_bucket_elements = 0; ///< the largest trainable bucket, padding included
    std::size_t wire_elements = 0;           ///< the buffer through which gradients are sent
    /// Gradient buckets in flight, spare places, and the buffer for copies of caller-owned
    /// gradients. Set it to 0 for an engine whose sums replace gradients (`can_sum_in_leases`).
    std::size_t gradient_lease_elements = 0;
    /// Gathered and copied buckets in flight, and spare places.
    std::size_t parameter_lease_elements = 0;
};

/// @brief Counts the buckets of one type for one rank. O(pieces).
/// @param extra_leases number of spare places in the pools whose size depends on the order of use:
/// gradients, and in stage 3 gathered units; see `LeasePlan`
/// @param further_leases spare places added to those
/// @param wire_capacity elements of the communication type; see `wire_elements`
/// @param gather the options of stage 3 that change the leases of parameters
/// @throws InvalidArgument if there is no such rank, or as `plan_parameter_leases`
LayoutTotals count_layout(FlatLayout const& layout, std::size_t rank, StageRow const& row,
                          Storage storage, std::size_t extra_leases, std::size_t type = 0,
                          std::size_t further_leases = 0,
                          std::size_t wire_capacity = default_wire_elements,
                          GatherOptions const& gather = {});

/// @brief Bytes of one kind of buffer on one rank.
struct MemoryRow {
    std::size_t content_bytes = 0; ///< without padding, except for leases
    std::size_t padding_bytes = 0; ///< padding; 0 for leases
    bool is_callers = false;       ///< caller-owned, not allocated by the engine

    /// @brief Returns the bytes of content and padding.
    [[nodiscard]] constexpr std::size_t bytes() const noexcept {
        return content_bytes + padding_bytes;
    }
    friend constexpr bool operator==(MemoryRow, MemoryRow) = default;
};

/// @brief The memory of one rank: the bytes of every buffer of an engine, known before anything is
/// allocated. The engine allocates exactly these bytes, except for the rows of the caller. The row
/// `communicator` is one of them: the caller's communicator has allocated it.
///
/// With `rebuild_buckets` the engine follows one plan until the end of the first step and another
/// one after it. The peak in between is the larger of two sums: the whole new plan, the old master
/// weights, states and scratch memory, and one whole parameter; or the parameters, leases and
/// secondary copies of both plans, the old states, and one whole parameter
/// (docs/design/leases_and_gathers.md).
struct MemoryPlan {
    std::array<MemoryRow, buffer_kinds> rows{}; ///< indexed by `BufferKind`
    /// Size of the file that holds the offloaded states, or of the host's memory for them. No row
    /// contains it.
    std::uint64_t tier_bytes = 0;
    bool is_on_host = false; ///< `tier_bytes` are page-locked memory of the host (`HostMemory`)

    /// @brief Returns the row of one kind of buffer.
    [[nodiscard]] constexpr MemoryRow& operator[](BufferKind kind) noexcept {
        return rows[static_cast<std::size_t>(kind)];
    }

    /// @brief Returns the row of one kind of buffer.
    [[nodiscard]] constexpr MemoryRow const& operator[](BufferKind kind) const noexcept {
        return rows[static_cast<std::size_t>(kind)];
    }

    /// @brief Adds the plan of another parameter type or engine. Where one of them has memory of
    /// the caller, the row is that of the other.
    constexpr MemoryPlan& operator+=(MemoryPlan const& other) noexcept {
        for (std::size_t kind = 0; kind < rows.size(); ++kind) {
            if (rows[kind].is_callers != other.rows[kind].is_callers && rows[kind].bytes() != 0
                && other.rows[kind].bytes() != 0) {
                rows[kind] = rows[kind].is_callers ? other.rows[kind] : rows[kind];
                continue;
            }
            rows[kind].content_bytes += other.rows[kind].content_bytes;
            rows[kind].padding_bytes += other.rows[kind].padding_bytes;
            rows[kind].is_callers = rows[kind].is_callers || other.rows[kind].is_callers;
        }
        tier_bytes += other.tier_bytes;
        is_on_host = is_on_host || other.is_on_host;
        return *this;
    }

    /// @brief Returns the bytes that the engine allocates.
    [[nodiscard]] constexpr std::size_t engine_bytes() const noexcept {
        std::size_t sum = 0;
        for (auto const& row : rows) {
            sum += row.is_callers ? 0 : row.bytes();
        }
        return sum;
    }

    /// @brief Returns the bytes of the model states as the ZeRO paper counts them: parameters,
    /// gradients, master weights and moments, without leases and padding.
    [[nodiscard]] constexpr std::size_t model_state_bytes() const noexcept {
        return (*this)[BufferKind::parameters].content_bytes
               + (*this)[BufferKind::gradients].content_bytes
               + (*this)[BufferKind::master_weights].content_bytes
               + (*this)[BufferKind::optimizer_state].content_bytes;
    }
};

/// @brief Returns one line for each kind of buffer that is not empty, for instance "master weights:
/// 1234 bytes (56 of padding)", and a line with the bytes that the engine allocates.
std::string to_string(MemoryPlan const& plan);

/// @brief Returns the plan as one JSON object: the rows that are not empty as
/// `"master weights": {"content_bytes": 1178, "padding_bytes": 56, "is_callers": false}`, and
/// `engine_bytes`, `model_state_bytes`, `tier_bytes` and `is_on_host`.
std::string to_json(MemoryPlan const& plan);

/// @brief Evaluates the memory formulas (ZeRO, figure 1, for every buffer of an engine).
/// @param has_wire whether gradients are converted to the communication type before they are sent,
/// which takes a buffer of `wire_elements`
/// @param control_bytes bytes of the scalars of a step
constexpr MemoryPlan plan_memory(StageRow const& row, LayoutTotals const& totals,
                                 ElementSizes const& sizes, Storage storage, bool has_wire,
                                 std::size_t control_bytes) noexcept {
    auto const sized = [](std::size_t content, std::size_t padded, std::size_t bytes) {
        return MemoryRow{content * bytes, (padded - content) * bytes, false};
    };
    auto const trainable = [&](Placement placement, std::size_t bytes,
                               std::size_t bytes_per_block = 0) {
        bool const is_whole = placement == Placement::replicated;
        MemoryRow result =
            is_whole ? sized(totals.trainable_content, totals.trainable_padded, bytes)
                     : sized(totals.own_trainable_content, totals.own_trainable_padded, bytes);
        result.content_bytes +=
            bytes_per_block * (is_whole ? totals.trainable_blocks : totals.own_trainable_blocks);
        return result;
    };
    MemoryPlan plan;
    if (storage != Storage::owned) {
        plan[BufferKind::parameters] = {totals.all_content * sizes.parameter, 0, true};
    } else if (row.parameters == Placement::replicated) {
        plan[BufferKind::parameters] =
            sized(totals.all_content, totals.all_padded, sizes.parameter);
    } else {
        plan[BufferKind::parameters] =
            sized(totals.own_content, totals.own_padded, sizes.parameter);
    }
    plan[BufferKind::gradients] = trainable(row.accumulation_buffer, sizes.accumulation);
    plan[BufferKind::master_weights] =
        trainable(row.optimizer_state, sizes.master, sizes.master_per_block);
    plan[BufferKind::optimizer_state] =
        trainable(row.optimizer_state, sizes.optimizer_state, sizes.optimizer_state_per_block);
    plan[BufferKind::gradient_leases] = {totals.gradient_lease_elements * sizes.gradient, 0, false};
    plan[BufferKind::parameter_leases] = {totals.parameter_lease_elements * sizes.parameter, 0,
                                          false};
    plan[BufferKind::wire] = {has_wire ? totals.wire_elements * sizes.communication : 0, 0, false};
    plan[BufferKind::control] = {control_bytes, 0, false};
    return plan;
}

/// @brief Returns the part of a gathered bucket that rank `part` of `parts` keeps with
/// `Groups<C, Secondary>`: equal parts but for the end of the bucket, at multiples of
/// `granularity`. Empty for a persistent bucket, which stays gathered.
inline Range secondary_range(FlatLayout const& layout, std::size_t bucket, std::size_t part,
                             std::size_t parts) noexcept {
    if (layout.bucket(bucket).is_persistent) {
        return {};
    }
    std::size_t const elements = layout.elements(bucket);
    std::size_t const most = even_extent(elements, parts);
    return {detail::smaller(most * part, elements), detail::smaller(most * (part + 1), elements)};
}

/// @brief Returns the row `secondary_copies` of an engine of stage 3 on `Groups<C, Secondary>`.
/// @param part this rank's number among those that share a copy, below `parts`
/// @param parts k
/// @param element_bytes bytes of a parameter
MemoryRow plan_secondary_copies(FlatLayout const& layout, std::size_t part, std::size_t parts,
                                std::size_t element_bytes, std::size_t type = 0);

/// @brief Returns the row `weight_codes` of an engine of stages 1 to 3 with a codec of weights: the
/// largest trainable bucket of one parameter type. With one of frozen parameters the largest frozen
/// bucket is added.
/// @param block_bytes `Codec::bytes_per_block`
MemoryRow plan_weight_codes(FlatLayout const& layout, std::size_t block_bytes, std::size_t type = 0,
                            bool is_frozen = false);

/// @brief Returns what `FrozenWeights` adds to the row `parameters` of a rank, which has no shards
/// of frozen parameters then. Blocks of padding count as padding.
/// @param block_bytes `Codec::bytes_per_block`
MemoryRow plan_frozen_codes(FlatLayout const& layout, std::size_t rank, std::size_t block_bytes,
                            std::size_t type = 0);

/// @brief Returns the row `wire` of an engine of stages 1 to 3 with a codec of gradients: the
/// largest codes that an exchange sends, and the largest that it receives.
/// @param block_bytes `Codec::bytes_per_block`
/// @param wire_bytes `GradientReductionOptions::wire_bytes`: the capacity of either
/// @throws InvalidArgument if there is no such rank
MemoryRow plan_gradient_codes(FlatLayout const& layout, std::size_t rank, std::size_t block_bytes,
                              std::size_t wire_bytes, std::size_t type = 0);

/// @brief Returns what the ranks of a layout add of a bucket in codes: each its extent.
inline CodedParts parts_of_ranks(FlatLayout const& layout, std::size_t bucket) noexcept {
    return {{0, layout.elements(bucket)}, layout.cuts(bucket)};
}

/// @brief Returns what R replicas add of a rank's extent in codes: each an equal part of it. One
/// replica adds nothing.
inline CodedParts parts_of_replicas(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                                    std::size_t replicas) noexcept {
    Range const own = replicas == 1 ? Range{} : layout.extent(bucket, rank);
    return {own, Cuts::even(replicas, even_extent(own.size(), replicas))};
}

/// @brief Returns what is added to the row `wire` of an engine whose replicas add sums in codes:
/// as `plan_gradient_codes`.
/// @param rank this rank's number among those of `layout`
/// @param replica its number among the R replicas
/// @throws InvalidArgument if there is no such rank or replica
MemoryRow plan_replica_codes(FlatLayout const& layout, std::size_t rank, std::size_t replica,
                             std::size_t replicas, std::size_t block_bytes, std::size_t wire_bytes,
                             std::size_t type = 0);

/// @brief Returns the row `gradient_errors` of an engine with `ErrorFeedback`: all trainable
/// elements on every rank, padding included.
/// @param block_bytes bytes of 64 errors: 256 as floats, or `Codec::bytes_per_block`
MemoryRow plan_gradient_errors(FlatLayout const& layout, std::size_t block_bytes,
                               std::size_t type = 0);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/plan/memory_plan.ipp"
#endif
