#pragma once

#include "../policy/master_weights.hpp"

#include <type_traits>

namespace zero {

/// @brief What forbids a composition, or `none`.
enum class Conflict {
    none,
    no_such_stage,                ///< stages are 0 to 3
    bucket_spans_units,           ///< stage 3 gathers unit by unit
    optimizer_needs_whole_tensor, ///< a partitioner that cuts parameters gives it pieces
    master_of_itself,             ///< parameters with a copy of themselves
    master_loses_bits,            ///< a copy of a narrower type than the parameter's
    split_of_other,               ///< a float is split into a bfloat16 and the rest only
    rounding_of_float             ///< float parameters are not rounded
};

/// @brief What forbids a policy of master weights for parameters of one type, or `none`.
template <StorageType Parameter, MasterWeightsPolicy Policy>
constexpr Conflict master_conflict() noexcept {
    if constexpr (Policy::form == MasterForm::copied) {
        constexpr auto digits = []<class T>(T) { return std::is_same_v<T, float> ? 24 : std::is_same_v<T, float16> ? 11 : 8; };
        constexpr int kept = digits(typename Policy::Type{});
        constexpr int needed = digits(Parameter{});
        return kept < needed ? Conflict::master_loses_bits : kept == needed ? Conflict::master_of_itself : Conflict::none;
    } else if constexpr (Policy::form == MasterForm::split) {
        return std::is_same_v<Parameter, bfloat16> ? Conflict::none : Conflict::split_of_other;
    } else if constexpr (Policy::form == MasterForm::stochastic) {
        return std::is_same_v<Parameter, float> ? Conflict::rounding_of_float : Conflict::none;
    } else {
        return Conflict::none;
    }
}

/// @brief Which stage, partitioner, bucketer and optimizer go together: the one place that knows.
/// @param master what `master_conflict` says
constexpr Conflict conflict_of(int stage, bool partitioner_cuts_parameters, bool bucketer_may_span_units, bool optimizer_is_whole_tensor,
                               Conflict master) noexcept {
    if (stage < 0 || stage > 3) {
        return Conflict::no_such_stage;
    }
    if (stage == 3 && bucketer_may_span_units) {
        return Conflict::bucket_spans_units;
    }
    if (stage != 0 && optimizer_is_whole_tensor && partitioner_cuts_parameters) {
        return Conflict::optimizer_needs_whole_tensor;
    }
    return master;
}

} // namespace zero
