#pragma once

#include "../../core/detail/light_std.hpp"
#include "../layout_totals.hpp"
#include "../lease_count.hpp"
#include "../parameter_spec.hpp"
#include "../range.hpp"
#include "count_blocks.hpp"
#include "require_rank.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE LayoutTotals count_layout(FlatLayout const& layout, std::size_t rank,
                                           StageRow const& row, Storage storage,
                                           std::size_t extra_leases, std::size_t type,
                                           std::size_t further_gradient_leases) {
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
                detail::larger(totals.largest_gathered_bucket, layout.elements(bucket));
        }
    }
    totals.largest_trainable_bucket = largest_bucket(layout, layout.trainable_buckets(), type);
    if (trainable_buckets != 0) { // a bucket of empty parameters also takes a lease, of 0 bytes
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
