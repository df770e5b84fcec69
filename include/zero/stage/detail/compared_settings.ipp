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
    reduction.add(schedule).add(kind).add(double{predivide}).add(wire_bytes);
    Hash rebuild;
    rebuild.add(rebuilds_buckets).add(leases_until_rebuild);
    return {{"stage", hash_of(stage)},
            {"parameters", types.value()},
            {"reduction", reduction.value()},
            {"storage", hash_of(storage)},
            {"prefetch", hash_of(prefetch)},
            {"extra_leases", hash_of(extra_leases)},
            {"rebuild_buckets", rebuild.value()},
            {"unused_parameters", hash_of(unused_parameters)},
            {"non_finite", hash_of(non_finite)},
            {"skip_limit", hash_of(skip_limit)},
            {"gradient_clipping", hash_of(double{gradient_clipping})},
            {"loss_scaler", loss_scaler},
            {"master_weights", master_weights},
            {"optimizer", optimizer},
            {"groups", groups},
            {"communicator", communicator}};
}

} // namespace ZERO_NAMESPACE::detail
