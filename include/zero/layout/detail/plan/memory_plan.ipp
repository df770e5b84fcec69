#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../communication_model.hpp"
#include "../../gradient_source.hpp"
#include "../../lease_plan.hpp"
#include "../../memory_plan.hpp"
#include "../../parameter_spec.hpp"
#include "../../piece.hpp"
#include "count_blocks.hpp"

// The elements of a plan and its text. `plan_memory` in memory_plan.hpp makes bytes of the
// elements.

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::string to_string(MemoryPlan const& plan) {
    std::string text;
    for (std::size_t kind = 0; kind < plan.rows.size(); ++kind) {
        MemoryRow const& row = plan.rows[kind];
        if (row.bytes() != 0) {
            std::string const padding =
                row.padding_bytes == 0 ? "" : detail::text({row.padding_bytes, " of padding"});
            std::string const remarks =
                padding
                + (row.is_callers ? (padding.empty() ? "the caller's" : "; the caller's") : "");
            text += detail::text({name_of(static_cast<BufferKind>(kind)), ": ", row.bytes(),
                                  " bytes", (remarks.empty() ? "" : " (" + remarks + ")"), "\n"});
        }
    }
    text += detail::text({"allocated by the engine: ", plan.engine_bytes(), " bytes\n"});
    if (plan.tier_bytes != 0) {
        text += detail::text(
            {plan.is_on_host ? "page-locked: " : "in a file: ", plan.tier_bytes, " bytes\n"});
    }
    return text;
}

ZERO_COLD_INLINE std::string to_json(MemoryPlan const& plan) {
    auto const truth = [](bool value) { return value ? "true" : "false"; };
    std::string rows;
    for (std::size_t kind = 0; kind < plan.rows.size(); ++kind) {
        MemoryRow const& row = plan.rows[kind];
        if (row.bytes() != 0) {
            rows += detail::text(
                {rows.empty() ? "\"" : ", \"", name_of(static_cast<BufferKind>(kind)),
                 R"(": {"content_bytes": )", row.content_bytes, R"(, "padding_bytes": )",
                 row.padding_bytes, R"(, "is_callers": )", truth(row.is_callers), "}"});
        }
    }
    return detail::text({R"({"rows": {)", rows, R"(}, "engine_bytes": )", plan.engine_bytes(),
                         R"(, "model_state_bytes": )", plan.model_state_bytes(),
                         R"(, "tier_bytes": )", plan.tier_bytes, R"(, "is_on_host": )",
                         truth(plan.is_on_host), "}"});
}

ZERO_COLD_INLINE LayoutTotals count_layout(FlatLayout const& layout, std::size_t rank,
                                           StageRow const& row, Storage storage,
                                           std::size_t extra_leases, std::size_t type,
                                           std::size_t further_leases, std::size_t wire_capacity,
                                           GatherOptions const& gather) {
    detail::require_rank(layout, rank);
    LayoutTotals totals;
    for (auto const& spec : layout.parameters()) {
        totals.all_content += spec.type == type ? spec.elements : 0;
    }
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (layout.bucket(bucket).type != type) {
            continue;
        }
        Range const own = layout.extent(bucket, rank);
        std::size_t const own_content = layout.content(bucket, own);
        totals.all_padded += layout.elements(bucket);
        totals.own_content += own_content;
        totals.own_padded += own.size();
        if (layout.bucket(bucket).trainable) {
            totals.largest_bucket_elements =
                detail::larger(totals.largest_bucket_elements, layout.elements(bucket));
            totals.wire_elements = detail::larger(
                totals.wire_elements, wire_elements(layout.cuts(bucket), wire_capacity));
            totals.trainable_content += layout.content(bucket, {0, layout.elements(bucket)});
            totals.trainable_padded += layout.elements(bucket);
            totals.own_trainable_content += own_content;
            totals.own_trainable_padded += own.size();
            totals.trainable_blocks +=
                detail::count_blocks(layout, bucket, rank, Placement::replicated);
            totals.own_trainable_blocks +=
                detail::count_blocks(layout, bucket, rank, Placement::sharded);
        }
    }
    totals.gradient_lease_elements =
        plan_gradient_leases(layout, !row.shards_parameters(),
                             spare_places(extra_leases, further_leases), type)
            .elements
        + copied_gradient_elements(layout, type);
    totals.parameter_lease_elements =
        plan_parameter_leases(layout, row, storage, spare_places(extra_leases, further_leases),
                              type, gather)
            .elements;
    return totals;
}

ZERO_COLD_INLINE MemoryRow plan_secondary_copies(FlatLayout const& layout, std::size_t part,
                                                 std::size_t parts, std::size_t element_bytes,
                                                 std::size_t type) {
    MemoryRow row;
    detail::for_buckets(layout, {0, layout.buckets()}, type, [&](std::size_t bucket) {
        Range const own = secondary_range(layout, bucket, part, parts);
        std::size_t const content = layout.content(bucket, own);
        row.content_bytes += content * element_bytes;
        row.padding_bytes += (own.size() - content) * element_bytes;
    });
    return row;
}

ZERO_COLD_INLINE MemoryRow plan_weight_codes(FlatLayout const& layout, std::size_t block_bytes,
                                             std::size_t type, bool is_frozen) {
    MemoryRow row;
    std::size_t const trainable = layout.trainable_buckets();
    Range const buckets = is_frozen ? Range{trainable, layout.buckets()} : Range{0, trainable};
    detail::for_buckets(layout, buckets, type, [&](std::size_t bucket) {
        row.content_bytes = detail::larger(
            row.content_bytes, layout.elements(bucket) / detail::block_elements * block_bytes);
    });
    return row;
}

ZERO_COLD_INLINE MemoryRow plan_frozen_codes(FlatLayout const& layout, std::size_t rank,
                                             std::size_t block_bytes, std::size_t type) {
    detail::require_rank(layout, rank);
    MemoryRow row;
    Range const frozen{layout.trainable_buckets(), layout.buckets()};
    detail::for_buckets(layout, frozen, type, [&](std::size_t bucket) {
        std::size_t const used = detail::count_blocks(layout, bucket, rank, Placement::sharded);
        std::size_t const all = layout.extent(bucket, rank).size() / detail::block_elements;
        row.content_bytes += used * block_bytes;
        row.padding_bytes += (all - used) * block_bytes;
    });
    return row;
}

namespace detail {

/// @brief The codes that `rank` of `ranks` holds. @param parts_of `parts_of(bucket)`: what they add
template <class Parts>
MemoryRow plan_codes(FlatLayout const& layout, std::size_t rank, std::size_t ranks,
                     std::size_t block_bytes, std::size_t wire_bytes, std::size_t type,
                     Parts const& parts_of) {
    std::size_t const capacity = coded_capacity(wire_bytes, block_bytes);
    std::size_t sent = 0;
    std::size_t received = 0;
    for_buckets(layout, {0, layout.trainable_buckets()}, type, [&](std::size_t bucket) {
        CodedParts const parts = parts_of(bucket); // of which the first chunk is the largest
        std::size_t const stride = exchange_stride(parts.cuts, capacity);
        std::size_t chunk = 0;
        for (std::size_t other = 0; other < ranks; ++other) {
            chunk += parts.chunk(other, stride, 0).size();
        }
        sent = larger(sent, chunk);
        received = larger(received, ranks * parts.chunk(rank, stride, 0).size());
    });
    return {(sent + received) / block_elements * block_bytes, 0, false};
}

} // namespace detail

ZERO_COLD_INLINE MemoryRow plan_gradient_codes(FlatLayout const& layout, std::size_t rank,
                                               std::size_t block_bytes, std::size_t wire_bytes,
                                               std::size_t type) {
    detail::require_rank(layout, rank);
    return detail::plan_codes(layout, rank, layout.world(), block_bytes, wire_bytes, type,
                              [&](std::size_t bucket) { return parts_of_ranks(layout, bucket); });
}

ZERO_COLD_INLINE MemoryRow plan_replica_codes(FlatLayout const& layout, std::size_t rank,
                                              std::size_t replica, std::size_t replicas,
                                              std::size_t block_bytes, std::size_t wire_bytes,
                                              std::size_t type) {
    detail::require_rank(layout, rank);
    detail::require_replica(replica, replicas);
    return detail::plan_codes(
        layout, replica, replicas, block_bytes, wire_bytes, type,
        [&](std::size_t bucket) { return parts_of_replicas(layout, bucket, rank, replicas); });
}

ZERO_COLD_INLINE MemoryRow plan_gradient_errors(FlatLayout const& layout, std::size_t block_bytes,
                                                std::size_t type) {
    MemoryRow row;
    detail::for_buckets(layout, {0, layout.trainable_buckets()}, type, [&](std::size_t bucket) {
        row.content_bytes += layout.elements(bucket) / detail::block_elements * block_bytes;
    });
    return row;
}

} // namespace ZERO_NAMESPACE
