#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../policy/master_weights_policy.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief What forbids a composition, or `none`.
enum class Conflict {
    none,
    no_such_stage,      ///< stages are 0 to 3
    bucket_spans_units, ///< stage 3 gathers unit by unit
    units_on_few_ranks, ///< stage 3 with shards of the whole group: few ranks would send all of a
                        ///< unit
    bucketer_not_the_partitioners, ///< a partitioner that brings its bucketer, and another one
    whole_tensor_on_device,        ///< optimizers of whole parameters have no kernels
    optimizer_needs_whole_tensor,  ///< a partitioner that cuts parameters gives it pieces
    whole_tensor_storage, ///< states with a scale per block, or stochastic rounding, which only the
                          ///< element-wise update knows
    master_of_itself,     ///< parameters with a copy of themselves
    master_loses_bits,    ///< a copy of a narrower type than the parameter's
    split_of_other,       ///< a float is split into a bfloat16 and the rest only
    rounding_of_float     ///< float parameters are not rounded
};

/// @brief What forbids a policy of master weights for parameters of one type, or `none`.
template <StorageType Parameter, MasterWeightsPolicy Policy>
constexpr Conflict master_conflict() noexcept {
    if constexpr (Policy::form == MasterForm::copied) {
        constexpr auto digits = []<class T>(T) {
            return std::is_same_v<T, float> ? 24 : std::is_same_v<T, float16> ? 11 : 8;
        };
        constexpr int kept = digits(typename Policy::Type{});
        constexpr int needed = digits(Parameter{});
        return kept < needed    ? Conflict::master_loses_bits
               : kept == needed ? Conflict::master_of_itself
                                : Conflict::none;
    } else if constexpr (Policy::form == MasterForm::split) {
        return std::is_same_v<Parameter, bfloat16> ? Conflict::none : Conflict::split_of_other;
    } else if constexpr (Policy::form == MasterForm::stochastic) {
        return std::is_same_v<Parameter, float> ? Conflict::rounding_of_float : Conflict::none;
    } else {
        return Conflict::none;
    }
}

/// @brief The same for a model. Float parameters beside 16-bit ones are their own master weights,
/// whatever the policy.
template <MasterWeightsPolicy Policy, StorageType... Parameter>
constexpr Conflict master_conflict_of_all() noexcept {
    if constexpr ((std::is_same_v<Parameter, float> && ...)) {
        return master_conflict<float, Policy>();
    } else {
        Conflict first = Conflict::none;
        ((first = first == Conflict::none && !std::is_same_v<Parameter, float>
                      ? master_conflict<Parameter, Policy>()
                      : first),
         ...);
        return first;
    }
}

/// @brief What counts when policies that are valid each by itself are put together.
struct Composition {
    int stage = 0;                           ///< 0 to 3
    bool partitioner_cuts_parameters = true; ///< a parameter may have several owners
    bool partitioner_cuts_group =
        false; ///< shards are cut from the whole group, not bucket by bucket
    bool partitioner_brings_other_bucketer =
        false;                              ///< its `RequiredBucketer` is not the one that is given
    bool bucketer_may_span_units = false;   ///< also in stage 3
    bool optimizer_is_whole_tensor = false; ///< it needs whole parameters
    bool is_on_device = false;              ///< the backend's memory is not the host's
    bool is_stored_by_block = false;        ///< BlockScaledState or StochasticRounding
    Conflict master = Conflict::none;       ///< what `master_conflict_of_all` says
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
