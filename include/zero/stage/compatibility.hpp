#pragma once

namespace zero {

/// @brief What forbids a composition, or `none`.
enum class Conflict {
    none,
    no_such_stage,                 ///< stages are 0 to 3
    bucket_spans_units,            ///< stage 3 gathers unit by unit
    units_on_few_ranks,            ///< stage 3 with shards of the whole group: few ranks would send all of a unit
    bucketer_not_the_partitioners, ///< a partitioner that brings its bucketer, and another one
    optimizer_needs_whole_tensor,  ///< a partitioner that cuts parameters gives it pieces
    master_of_float                ///< fp32 parameters with an fp32 copy of themselves
};

/// @brief What counts when policies that are valid each by itself are put together.
struct Composition {
    int stage = 0;
    bool partitioner_cuts_parameters = true;
    bool partitioner_cuts_group = false;
    bool partitioner_brings_other_bucketer = false;
    bool bucketer_may_span_units = false;
    bool optimizer_is_whole_tensor = false;
    bool has_redundant_master = false;
};

/// @brief Which stage, partitioner, bucketer and optimizer go together: the one place that knows.
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
    if (composition.stage != 0 && composition.optimizer_is_whole_tensor && composition.partitioner_cuts_parameters) {
        return Conflict::optimizer_needs_whole_tensor;
    }
    return composition.has_redundant_master ? Conflict::master_of_float : Conflict::none;
}

} // namespace zero
