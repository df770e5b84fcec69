#pragma once

#include "option_checks.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../layout/placement.hpp"

#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

// Not inlined: g++ 12 otherwise assumes that the value of an empty optional is read, and warns in
// the caller's code.
[[gnu::noinline]] ZERO_COLD_INLINE void check_clipping(std::optional<float> const& largest_norm) {
    if (largest_norm && (!(*largest_norm > 0.0F) || !is_finite(*largest_norm))) {
        throw_error<InvalidArgument>(
            {"zero: gradient_clipping is ", *largest_norm,
             "; it must be positive and finite. Leave it out to switch clipping off."});
    }
}

ZERO_COLD_INLINE void check_non_finite(NonFinite non_finite, bool skips_overflow) {
    if (skips_overflow && non_finite != NonFinite::skip) {
        throw_error<InvalidArgument>(
            {"zero: non_finite would be ignored, because the loss scaler skips steps whose "
             "gradients are infinite or NaN; leave it out (at_minimum of DynamicLossScaler reports "
             "persistent overflows), or use NoLossScaler."});
    }
}

ZERO_COLD_INLINE void check_optimizer_is_used(std::size_t groups, bool is_default) {
    if (groups != 0 && !is_default) {
        throw_error<InvalidArgument>(
            {"zero: 'optimizer' would be ignored, because 'groups' lists the hyper-parameters of "
             "every group; give them there only."});
    }
}

ZERO_COLD_INLINE void throw_for_group(InvalidArgument const& error, std::size_t group) {
    throw_error<InvalidArgument>({error.what(), " It is an option of group ", group, '.'});
}

ZERO_COLD_INLINE void check_learning_rate_factor(std::size_t group, double factor) {
    if (!is_non_negative_float(factor)) {
        throw_error<InvalidArgument>({"zero: learning_rate_factor of group ", group, " is ", factor,
                                      "; it must be finite as a float and not negative."});
    }
}

ZERO_COLD_INLINE void check_clipped_groups(bool is_clipping, std::size_t groups,
                                           std::size_t clipped) {
    if (clipped == groups) {
        return;
    }
    if (!is_clipping) {
        throw_error<InvalidArgument>(
            {"zero: ", groups - clipped,
             " groups have is_clipped = false, which would be ignored, because gradient_clipping "
             "is off; leave it out, or set gradient_clipping."});
    }
    if (clipped == 0) {
        throw_error<InvalidArgument>(
            {"zero: gradient_clipping would clip nothing, because all ", groups,
             " groups have is_clipped = false; leave gradient_clipping out, or clip a group."});
    }
}

ZERO_COLD_INLINE void check_unscaling(float predivide, float loss_scale) {
    double const factor = static_cast<double>(predivide) / static_cast<double>(loss_scale);
    if (!(factor >= 0x1p-149 && factor <= 0x1.fffffep127)) {
        throw_error<InvalidArgument>(
            {"zero: reduced gradients are multiplied by predivide / loss scale, which is ", factor,
             " for predivide ", predivide, " and loss scale ", loss_scale,
             " and lies outside the range of float; give values that are nearer to 1."});
    }
}

ZERO_COLD_INLINE void check_storage(int stage, Storage storage, bool rebuilds,
                                    std::size_t leases_until_rebuild, bool has_block) {
    if (storage != Storage::owned
        && stage_table[static_cast<std::size_t>(stage)].shards_parameters()) {
        throw_error<InvalidArgument>(
            {"zero: stage 3 frees parameters between uses, which it cannot do with the caller's "
             "memory; use Storage::owned (give initial values by 'initial' or 'initialise') or a "
             "stage below 3."});
    }
    if (rebuilds && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: rebuild_buckets would be ignored, because an adopted block is cut in the order "
             "of its addresses; leave it out, or use Storage::scattered."});
    }
    if (!rebuilds && leases_until_rebuild != 0) {
        throw_error<InvalidArgument>(
            {"zero: leases_until_rebuild would be ignored without rebuild_buckets; set both, or "
             "use extra_leases."});
    }
    if ((storage == Storage::adopted) != has_block) {
        throw_error<InvalidArgument>(
            {"zero: Storage::adopted and adopted_block go together; give both or neither."});
    }
}

ZERO_COLD_INLINE void check_gather(GatherOptions const& gather) {
    if (gather.persistence_threshold == 0 && gather.max_persistent_elements != GatherOptions::all) {
        throw_error<InvalidArgument>(
            {"zero: gather.max_persistent_elements is ", gather.max_persistent_elements,
             ", which no stage would use without gather.persistence_threshold, because then no "
             "parameter is persistent; set both, or leave it out."});
    }
}

ZERO_COLD_INLINE std::vector<std::string> unused_options(int stage, std::size_t world,
                                                         GatherOptions const& gather,
                                                         std::size_t update_tile_elements) {
    std::vector<std::string> unused;
    StageRow const& row = stage_table[static_cast<std::size_t>(stage)];
    if (!row.shards_parameters()) {
        GatherOptions const standard;
        auto const add = [&](bool is_set, char const* name) {
            if (is_set) {
                unused.push_back(std::string("gather.") + name + " (stage 3 uses it)");
            }
        };
        add(gather.prefetch_elements.has_value(), "prefetch_elements");
        add(gather.persistence_threshold != standard.persistence_threshold,
            "persistence_threshold");
        add(gather.max_persistent_elements != standard.max_persistent_elements,
            "max_persistent_elements");
        add(gather.max_reuse_distance.has_value(), "max_reuse_distance");
        add(gather.keep_after_forward != standard.keep_after_forward, "keep_after_forward");
        add(gather.max_live_elements != standard.max_live_elements, "max_live_elements");
        add(gather.changed_order != standard.changed_order, "changed_order");
    }
    bool const updates_by_bucket = row.shards_optimizer() && !row.shards_parameters() && world > 1;
    if (updates_by_bucket && update_tile_elements != 0) {
        unused.emplace_back(
            "update_tile_elements (stages 0 and 3 use it, and a single rank in every stage)");
    }
    return unused;
}

} // namespace ZERO_NAMESPACE::detail
