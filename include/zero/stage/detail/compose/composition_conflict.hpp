#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../../policy/parameters.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The reason why a composition of policies is refused, or `none`. `diagnose_stage` has the
/// message of each.
enum class Conflict {
    none,
    no_such_stage,
    bucket_spans_units,
    units_on_few_ranks,
    bucketer_not_the_partitioners,
    optimizer_needs_whole_tensor,
    whole_tensor_storage,
    master_of_itself,
    master_loses_bits,
    split_of_other,
    rounding_of_float,
    tree_over_communicator,
    groups_without_shards,
    groups_in_float_anyway,
    secondary_without_gathers,
    tree_over_groups,
    tree_rounds,
    offload_from_device,
    offload_of_own_master,
    offload_of_replicas,
    offload_of_all_gradients,
    host_memory_of_host,
    host_memory_of_work,
    host_update_of_part,
    host_update_without_call,
    delayed_parameters,
    codes_without_gathers,
    codes_of_own_master,
    codes_of_offloaded_master,
    codes_of_offloaded,
    codes_without_backend,
    frozen_codes_without_shards,
    gradient_codes_without_shards,
    gradient_codes_beside_type,
    gradient_codes_in_tree,
    levels_without_groups,
    groups_in_float_and_codes,
    gradient_codes_without_exchange,
    gradient_codes_without_backend
};

// The one place that decides which stage, partitioner, bucketer and optimizer fit together. The
// messages are in diagnose_stage.hpp.

/// @brief The properties of policies that decide whether they fit together. Each policy is valid on
/// its own.
struct Composition {
    int stage = 0;                           ///< 0 to 3
    bool partitioner_cuts_parameters = true; ///< also some that are needed whole
    bool partitioner_cuts_group = false;     ///< shards are cut from the whole group, not bucket by
                                             ///< bucket
    bool partitioner_brings_other_bucketer = false; ///< its `RequiredBucketer` is not the given one
    bool bucketer_may_span_units = false;           ///< in stage 3 as well
    bool optimizer_is_whole_tensor = false;         ///< it needs whole parameters
    bool is_on_device = false;                      ///< the backend's memory is not on the host
    bool is_stored_by_block = false;                ///< BlockScaledState or StochasticRounding
    bool has_groups = false;                        ///< the communicator has replicas
    bool has_secondary = false;                     ///< it has parts for secondary copies
    bool sends_float_between = false;               ///< as floats
    bool sends_float = false;                       ///< every communication type is float
    bool adds_in_tree = false;                      ///< TreeReduction
    bool communicator_adds_in_tree = true;          ///< it can, with these types
    bool sends_exactly = true;                      ///< no communication type rounds gradients
    bool is_offloaded = false;                      ///< states lie in a tier
    bool offloads_masters = false;                  ///< master weights do
    bool offloads_parameters = false;               ///< parameters do
    bool offloads_gradients = false;                ///< the sums of gradients do
    bool has_masters = true;                        ///< a parameter type has some
    bool keeps_on_host = false;                     ///< states lie in `HostMemory`
    bool names_states_for_host = true;              ///< and nothing else
    bool can_serve_host = true;                     ///< the backend has what this takes
    bool names_all_for_host = true;                 ///< all that the host updates lies there
    bool delays_update = false;                     ///< DelayedUpdate
    bool codes_weights = false;                     ///< a Wire with a codec
    bool codes_frozen = false;                      ///< a Wire with a codec of frozen parameters
    bool all_have_copies = true;                    ///< every type has copied master weights
    bool can_encode = true;                         ///< the backend can, with these types
    bool codes_gradients = false;                   ///< a Wire with a codec of gradients
    bool codes_replicas = false;                    ///< of the sums that replicas add
    bool has_levels = false;                        ///< it names both levels
    bool sends_gradient_type = true;                ///< no communication type is another one
    bool can_exchange = true;                       ///< the communicator is an exchanging one
    bool can_encode_gradients = true;               ///< the backend can, with these types
    Conflict master = Conflict::none;               ///< the result of `master_conflict_of_all`
};

/// @brief Returns the first reason to refuse a composition, or `none`.
constexpr Conflict conflict_of(Composition const& composition) noexcept {
    bool const is_coded = composition.codes_gradients || composition.codes_replicas;
    struct Rule {
        bool is_broken;
        Conflict conflict;
    };
    Rule const rules[] = {
        {composition.stage < 0 || composition.stage > 3, Conflict::no_such_stage},
        {composition.stage == 3 && composition.bucketer_may_span_units,
         Conflict::bucket_spans_units},
        {composition.stage == 3 && composition.partitioner_cuts_group,
         Conflict::units_on_few_ranks},
        {composition.partitioner_brings_other_bucketer, Conflict::bucketer_not_the_partitioners},
        {composition.stage != 0 && composition.optimizer_is_whole_tensor
             && composition.partitioner_cuts_parameters,
         Conflict::optimizer_needs_whole_tensor},
        {composition.optimizer_is_whole_tensor && composition.is_stored_by_block,
         Conflict::whole_tensor_storage},
        {composition.has_groups && composition.stage == 0, Conflict::groups_without_shards},
        {composition.has_secondary && composition.stage != 3, Conflict::secondary_without_gathers},
        {composition.has_groups && composition.adds_in_tree, Conflict::tree_over_groups},
        {composition.sends_float_between && composition.sends_float,
         Conflict::groups_in_float_anyway},
        {composition.adds_in_tree && !composition.sends_exactly, Conflict::tree_rounds},
        {composition.adds_in_tree && !composition.communicator_adds_in_tree,
         Conflict::tree_over_communicator},
        {composition.is_offloaded && composition.is_on_device, Conflict::offload_from_device},
        {composition.master == Conflict::none && composition.offloads_masters
             && !composition.has_masters,
         Conflict::offload_of_own_master},
        {composition.offloads_parameters && composition.stage != 3, Conflict::offload_of_replicas},
        {composition.offloads_gradients && composition.stage < 2,
         Conflict::offload_of_all_gradients},
        {composition.keeps_on_host && !composition.is_on_device, Conflict::host_memory_of_host},
        {!composition.names_states_for_host, Conflict::host_memory_of_work},
        {!composition.names_all_for_host, Conflict::host_update_of_part},
        {composition.keeps_on_host && !composition.can_serve_host,
         Conflict::host_update_without_call},
        {composition.delays_update && composition.offloads_parameters,
         Conflict::delayed_parameters},
        {composition.codes_weights && composition.stage == 0, Conflict::codes_without_gathers},
        {composition.codes_weights && composition.stage != 3 && !composition.all_have_copies
             && composition.master == Conflict::none,
         Conflict::codes_of_own_master},
        {composition.codes_weights && composition.stage != 3
             && (composition.offloads_masters || composition.delays_update),
         Conflict::codes_of_offloaded_master},
        {composition.codes_frozen && composition.stage != 3, Conflict::frozen_codes_without_shards},
        {(composition.codes_weights || composition.codes_frozen) && composition.offloads_parameters,
         Conflict::codes_of_offloaded},
        {!composition.can_encode, Conflict::codes_without_backend},
        {composition.codes_gradients && composition.stage == 0,
         Conflict::gradient_codes_without_shards},
        {composition.codes_gradients && composition.adds_in_tree, Conflict::gradient_codes_in_tree},
        {composition.codes_gradients && !composition.sends_gradient_type,
         Conflict::gradient_codes_beside_type},
        {composition.has_levels && !composition.has_groups, Conflict::levels_without_groups},
        {composition.codes_replicas && composition.sends_float_between,
         Conflict::groups_in_float_and_codes},
        {is_coded && !composition.can_exchange, Conflict::gradient_codes_without_exchange},
        {is_coded && !composition.can_encode_gradients, Conflict::gradient_codes_without_backend}};
    for (Rule const& rule : rules) {
        if (rule.is_broken) {
            return rule.conflict;
        }
    }
    return composition.master;
}

/// @brief Returns why parameters of one type cannot have these master weights, or `none`.
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

/// @brief Returns the first such conflict in a model. Float parameters in a model with 16-bit ones
/// are their own master weights, whatever the policy.
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

/// @brief The same for the parameter types of a `Parameters` policy.
template <class MasterPolicy, class ParameterTypes>
struct MasterConflict;

template <class MasterPolicy, class... P>
struct MasterConflict<MasterPolicy, Parameters<P...>> {
    static constexpr Conflict value = master_conflict_of_all<MasterPolicy, P...>();
};

} // namespace ZERO_NAMESPACE::detail
