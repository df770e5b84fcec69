#pragma once

#include "compared_settings.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE List<ComparedOption> ComparedSettings::hashes() const {
    auto const hash_of = [](auto value) { return Hash().add(value).value(); };
    Hash types;
    for (DType const type : parameters) {
        types.add(type);
    }
    Hash reduction = sent;
    reduction.add(schedule).add(kind).add(double{predivide}).add(wire_bytes).add(one_micro_step);
    Hash rebuild;
    rebuild.add(rebuilds_buckets).add(leases_until_rebuild);
    Hash gathering;
    gathering.add(gather.prefetch_elements.has_value())
        .add(gather.prefetch_elements.value_or(0))
        .add(gather.persistence_threshold)
        .add(gather.max_persistent_elements)
        .add(gather.max_reuse_distance.has_value())
        .add(gather.max_reuse_distance.value_or(0))
        .add(gather.keep_after_forward)
        .add(gather.max_live_elements)
        .add(gather.changed_order);
    return {{"stage", hash_of(stage)},
            {"parameters", types.value()},
            {"reduction", reduction.value()},
            {"storage", hash_of(storage)},
            {"gather", gathering.value()},
            {"extra_leases", hash_of(extra_leases)},
            {"rebuild_buckets", rebuild.value()},
            {"unused_parameters", hash_of(unused_parameters)},
            {"non_finite", hash_of(non_finite)},
            {"skip_limit", hash_of(skip_limit)},
            {"report", Hash().add(report.zero_gradients).add(report.group_norms).value()},
            {"gradient_clipping", hash_of(double{gradient_clipping})},
            {"loss_scaler", loss_scaler},
            {"master_weights", master_weights},
            {"optimizer", optimizer},
            {"groups", groups},
            {"communicator", communicator},
            {"is_deterministic", initialisation}};
}

} // namespace ZERO_NAMESPACE::detail
