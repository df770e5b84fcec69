#pragma once

#include "../../core/detail/namespace.hpp"
#include "conflict.hpp"

/// The one place that decides which stage, partitioner, bucketer and optimizer fit together. The
/// messages are in diagnose_stage.hpp.
namespace ZERO_NAMESPACE::detail {

/// @brief The properties of policies that decide whether they fit together. Each policy is valid on
/// its own.
struct Composition {
    int stage = 0;                           ///< 0 to 3
    bool partitioner_cuts_parameters = true; ///< a parameter may have several owners
    bool partitioner_cuts_group = false;     ///< shards are cut from the whole group, not bucket by
                                             ///< bucket
    bool partitioner_brings_other_bucketer = false; ///< its `RequiredBucketer` is not the given one
    bool bucketer_may_span_units = false;           ///< in stage 3 as well
    bool optimizer_is_whole_tensor = false;         ///< it needs whole parameters
    bool is_on_device = false;                      ///< the backend's memory is not on the host
    bool is_stored_by_block = false;                ///< BlockScaledState or StochasticRounding
    Conflict master = Conflict::none;               ///< the result of `master_conflict_of_all`
};

/// @brief Returns the first reason to refuse a composition, or `none`.
constexpr Conflict conflict_of(Composition const& composition) noexcept {
    if (composition.stage < 0 || composition.stage > 3) {
        return Conflict::no_such_stage;
    }
    if (composition.stage == 3 && composition.bucketer_may_span_units) {
        return Conflict::bucket_spans_units;
    }
    if (composition.stage == 3 && composition.partitioner_cuts_group) {
        return Conflict::units_on_few_ranks;
    }
    if (composition.partitioner_brings_other_bucketer) {
        return Conflict::bucketer_not_the_partitioners;
    }
    if (composition.optimizer_is_whole_tensor && composition.is_on_device) {
        return Conflict::whole_tensor_on_device;
    }
    if (composition.stage != 0 && composition.optimizer_is_whole_tensor
        && composition.partitioner_cuts_parameters) {
        return Conflict::optimizer_needs_whole_tensor;
    }
    if (composition.optimizer_is_whole_tensor && composition.is_stored_by_block) {
        return Conflict::whole_tensor_storage;
    }
    return composition.master;
}

} // namespace ZERO_NAMESPACE::detail
