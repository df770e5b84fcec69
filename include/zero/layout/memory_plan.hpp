#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/memory_resource.hpp"
#include "detail/count_blocks.hpp"
#include "detail/require_rank.hpp"
#include "flat_layout.hpp"
#include "lease_count.hpp"
#include "placement.hpp"
#include "storage.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief Bytes of one kind of buffer on one rank.
struct MemoryRow {
    std::size_t content_bytes = 0; ///< elements of parameters, or leases as a whole
    std::size_t padding_bytes = 0; ///< what alignment adds
    bool is_callers = false;       ///< the caller's memory, not allocated by the engine

    /// @brief Both together.
    [[nodiscard]] constexpr std::size_t bytes() const noexcept {
        return content_bytes + padding_bytes;
    }
    friend constexpr bool operator==(MemoryRow, MemoryRow) = default;
};

/// @brief Elements of one type in a layout, as one rank sees them: all that the memory formulas
/// depend on.
struct LayoutTotals {
    std::size_t all_content = 0;           ///< parameters, frozen ones included
    std::size_t all_padded = 0;            ///< the same with padding
    std::size_t trainable_content = 0;     ///< without the frozen ones
    std::size_t trainable_padded = 0;      ///< the same with padding
    std::size_t own_content = 0;           ///< this rank's extents of all buckets
    std::size_t own_padded = 0;            ///< the same with padding
    std::size_t own_trainable_content = 0; ///< of the trainable buckets
    std::size_t own_trainable_padded = 0;  ///< the same with padding
    std::size_t trainable_blocks = 0; ///< of 64 elements, counted from the start of each slice of a
                                      ///< parameter, the last one of a slice may be short
    std::size_t own_trainable_blocks = 0;     ///< of this rank's extents
    std::size_t largest_trainable_bucket = 0; ///< elements with padding
    std::size_t largest_gathered_bucket = 0;  ///< stage 3: of all; else: of the staged ones
    std::size_t gradient_leases = 0;          ///< buckets in flight, extra ones included
    std::size_t parameter_leases = 0;         ///< gathered buckets at a time
};

/// @brief Bytes per element of each state, as the policies choose them.
struct ElementSizes {
    std::size_t parameter = 4;       ///< as it is stored and used
    std::size_t gradient = 4;        ///< as the backward pass writes it
    std::size_t communication = 4;   ///< as it is sent
    std::size_t accumulation = 4;    ///< as micro-steps are added
    std::size_t master = 0;          ///< beside the parameter; 0: it is its own master
    std::size_t optimizer_state = 8; ///< of all moments together
    std::size_t master_per_block =
        0; ///< what belongs to a block of 64 elements: bytes per started block of a slice
    std::size_t optimizer_state_per_block = 0; ///< the scales of all moments together
};

/// @brief Bytes per rank of every buffer, known before anything is allocated. What an allocator
/// hands out equals it.
///
/// With `rebuild_buckets` the engine has one plan until the end of the first step and another one
/// after it. In between it holds for the moment all of the new plan, the old master weights, states
/// and scratch memory, and one parameter as a whole; or, if that is more, both plans' parameters
/// and their leases, the old states, and one parameter (docs/design.md).
struct MemoryPlan {
    std::array<MemoryRow, buffer_kinds> rows{}; ///< by number of the kind

    /// @brief The row of one kind.
    [[nodiscard]] constexpr MemoryRow& operator[](BufferKind kind) noexcept {
        return rows[static_cast<std::size_t>(kind)];
    }

    /// @brief The row of one kind.
    [[nodiscard]] constexpr MemoryRow const& operator[](BufferKind kind) const noexcept {
        return rows[static_cast<std::size_t>(kind)];
    }

    /// @brief The plan of a model with several parameter types is the sum of theirs.
    constexpr MemoryPlan& operator+=(MemoryPlan const& other) noexcept {
        for (std::size_t kind = 0; kind < rows.size(); ++kind) {
            rows[kind].content_bytes += other.rows[kind].content_bytes;
            rows[kind].padding_bytes += other.rows[kind].padding_bytes;
            rows[kind].is_callers = rows[kind].is_callers || other.rows[kind].is_callers;
        }
        return *this;
    }

    /// @brief What the engine allocates.
    [[nodiscard]] constexpr std::size_t engine_bytes() const noexcept {
        std::size_t sum = 0;
        for (auto const& row : rows) {
            sum += row.is_callers ? 0 : row.bytes();
        }
        return sum;
    }

    /// @brief The model states of the ZeRO paper: parameters, gradients, master weights and
    /// moments, without leases and padding.
    [[nodiscard]] constexpr std::size_t model_state_bytes() const noexcept {
        return (*this)[BufferKind::parameters].content_bytes
               + (*this)[BufferKind::gradients].content_bytes
               + (*this)[BufferKind::master_weights].content_bytes
               + (*this)[BufferKind::optimizer_state].content_bytes;
    }
};

/// @brief One line for each kind of buffer that there is: "master weights: 1234 bytes (56 of
/// padding)".
inline std::string to_string(MemoryPlan const& plan) {
    std::string text;
    for (std::size_t kind = 0; kind < plan.rows.size(); ++kind) {
        MemoryRow const& row = plan.rows[kind];
        if (row.bytes() != 0) {
            text += detail::text({name_of(static_cast<BufferKind>(kind)), ": ", row.bytes(),
                                  " bytes (", row.padding_bytes, " of padding",
                                  (row.is_callers ? "; the caller's" : ""), ")\n"});
        }
    }
    return detail::text({text, "allocated by the engine: ", plan.engine_bytes(), " bytes\n"});
}

/// @brief The memory formulas (ZeRO, figure 1, with every buffer named).
/// @param has_wire the gradients are converted before they are sent, which takes one bucket of the
/// communication type
/// @param control_bytes scalars of a step
constexpr MemoryPlan plan_memory(StageRow const& row, LayoutTotals const& totals,
                                 ElementSizes const& sizes, Storage storage, bool has_wire,
                                 std::size_t control_bytes) noexcept {
    auto const held = [](std::size_t content, std::size_t padded, std::size_t bytes) {
        return MemoryRow{content * bytes, (padded - content) * bytes, false};
    };
    auto const trainable = [&](Placement placement, std::size_t bytes,
                               std::size_t bytes_per_block = 0) {
        bool const is_whole = placement == Placement::replicated;
        MemoryRow result =
            is_whole ? held(totals.trainable_content, totals.trainable_padded, bytes)
                     : held(totals.own_trainable_content, totals.own_trainable_padded, bytes);
        result.content_bytes +=
            bytes_per_block * (is_whole ? totals.trainable_blocks : totals.own_trainable_blocks);
        return result;
    };
    MemoryPlan plan;
    if (storage != Storage::owned) {
        plan[BufferKind::parameters] = {totals.all_content * sizes.parameter, 0, true};
    } else if (row.parameters == Placement::replicated) {
        plan[BufferKind::parameters] = held(totals.all_content, totals.all_padded, sizes.parameter);
    } else {
        plan[BufferKind::parameters] = held(totals.own_content, totals.own_padded, sizes.parameter);
    }
    plan[BufferKind::gradients] = trainable(row.accumulation_buffer, sizes.accumulation);
    plan[BufferKind::master_weights] =
        trainable(row.optimizer_state, sizes.master, sizes.master_per_block);
    plan[BufferKind::optimizer_state] =
        trainable(row.optimizer_state, sizes.optimizer_state, sizes.optimizer_state_per_block);
    plan[BufferKind::gradient_leases] = {
        totals.gradient_leases * totals.largest_trainable_bucket * sizes.gradient, 0, false};
    plan[BufferKind::parameter_leases] = {
        totals.parameter_leases * totals.largest_gathered_bucket * sizes.parameter, 0, false};
    plan[BufferKind::wire] = {has_wire ? totals.largest_trainable_bucket * sizes.communication : 0,
                              0, false};
    plan[BufferKind::control] = {control_bytes, 0, false};
    return plan;
}

/// @brief Counts the buckets of one type for one rank. O(pieces).
/// @throws InvalidArgument when there is no such rank
/// @param extra_leases added to the pools that depend on the order of use: gradients, and gathered
/// units in stage 3; see `lease_count`
/// @param further_gradient_leases added to those of gradients
[[gnu::cold]] inline LayoutTotals count_layout(FlatLayout const& layout, std::size_t rank,
                                               StageRow const& row, Storage storage,
                                               std::size_t extra_leases, std::size_t type = 0,
                                               std::size_t further_gradient_leases = 0) {
    detail::require_rank(layout, rank);
    LayoutTotals totals;
    bool const is_gathered = row.shards_parameters();
    std::size_t buckets = 0;
    std::size_t trainable_buckets = 0;
    for (auto const& spec : layout.parameters()) {
        totals.all_content += spec.type == type ? spec.elements : 0;
    }
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (layout.bucket(bucket).type != type) {
            continue;
        }
        ++buckets;
        Range const own = layout.extent(bucket, rank);
        std::size_t const own_content = layout.content(bucket, own);
        totals.all_padded += layout.elements(bucket);
        totals.own_content += own_content;
        totals.own_padded += own.size();
        if (layout.bucket(bucket).trainable) {
            ++trainable_buckets;
            totals.trainable_content += layout.content(bucket, {0, layout.elements(bucket)});
            totals.trainable_padded += layout.elements(bucket);
            totals.own_trainable_content += own_content;
            totals.own_trainable_padded += own.size();
            totals.trainable_blocks +=
                detail::count_blocks(layout, bucket, rank, Placement::replicated);
            totals.own_trainable_blocks +=
                detail::count_blocks(layout, bucket, rank, Placement::sharded);
        }
        bool const is_copied = is_gathered
                               || (storage == Storage::scattered && layout.bucket(bucket).trainable)
                               || layout.bucket(bucket).is_staged;
        if (is_copied) {
            totals.largest_gathered_bucket =
                std::max(totals.largest_gathered_bucket, layout.elements(bucket));
        }
    }
    totals.largest_trainable_bucket = largest_bucket(layout, layout.trainable_buckets(), type);
    if (trainable_buckets != 0) { // a bucket of empty parameters takes a lease, too, of no bytes
        std::size_t const needed = lease_count(most_open_buckets(layout, !is_gathered, type) + 1,
                                               extra_leases, trainable_buckets);
        totals.gradient_leases = lease_count(needed, further_gradient_leases, trainable_buckets);
    }
    if (is_gathered) {
        totals.parameter_leases =
            lease_count(2 * most_buckets_of_a_unit(layout, type), extra_leases, buckets);
    } else if (totals.largest_gathered_bucket != 0 && row.reduced_gradients == Placement::sharded) {
        totals.parameter_leases = 1;
    }
    return totals;
}

} // namespace ZERO_NAMESPACE
