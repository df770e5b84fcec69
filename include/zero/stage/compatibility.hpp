#pragma once

namespace zero {

/// @brief What forbids a composition, or `none`.
enum class Conflict {
    none,
    no_such_stage,                ///< stages are 0 to 3
    bucket_spans_units,           ///< stage 3 gathers unit by unit
    optimizer_needs_whole_tensor, ///< a partitioner that cuts parameters gives it pieces
    master_of_float               ///< fp32 parameters with an fp32 copy of themselves
};

/// @brief Which stage, partitioner, bucketer and optimizer go together: the one place that knows.
constexpr Conflict conflict_of(int stage, bool partitioner_cuts_parameters, bool bucketer_may_span_units, bool optimizer_is_whole_tensor,
                               bool has_redundant_master) noexcept {
    if (stage < 0 || stage > 3) {
        return Conflict::no_such_stage;
    }
    if (stage == 3 && bucketer_may_span_units) {
        return Conflict::bucket_spans_units;
    }
    if (stage != 0 && optimizer_is_whole_tensor && partitioner_cuts_parameters) {
        return Conflict::optimizer_needs_whole_tensor;
    }
    return has_redundant_master ? Conflict::master_of_float : Conflict::none;
}

} // namespace zero
