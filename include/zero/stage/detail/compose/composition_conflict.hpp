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
    /// The composition is accepted.
    none,
    /// Stages are 0 to 3.
    no_such_stage,
    /// Stage 3 gathers unit by unit.
    bucket_spans_units,
    /// Stage 3 with shards cut from the whole group: few ranks would send all of a unit.
    units_on_few_ranks,
    /// The partitioner requires its own bucketer, and another one is given.
    bucketer_not_the_partitioners,
    /// The partitioner cuts parameters, and the optimizer needs whole ones.
    optimizer_needs_whole_tensor,
    /// Only the element-wise update supports a scale per block of states, or stochastic rounding.
    whole_tensor_storage,
    /// Master weights of the parameters' own type.
    master_of_itself,
    /// Master weights of a narrower type than the parameters.
    master_loses_bits,
    /// Only bfloat16 parameters can be completed to float master weights.
    split_of_other,
    /// Float parameters are not rounded.
    rounding_of_float,
    /// A tree of micro-batches, and a communicator that adds in another order.
    tree_over_communicator,
    /// Groups that shard, and a stage that shards nothing.
    groups_without_shards,
    /// Groups that send floats between replicas, where all communication types are float.
    groups_in_float_anyway,
    /// Copies of what is gathered, and a stage that gathers nothing in a step.
    secondary_without_gathers,
    /// A tree of micro-batches, and groups, which add in two levels.
    tree_over_groups,
    /// A tree of micro-batches, and a communication type that rounds them.
    tree_rounds,
    /// A tier on the host, and states on a device.
    offload_from_device,
    /// Master weights are offloaded, and the parameters are their own.
    offload_of_own_master,
    /// Parameters are offloaded, and the stage does not shard them.
    offload_of_replicas,
    /// Gradients are offloaded, and the stage does not shard their sums.
    offload_of_all_gradients,
    /// States of a device lie on its host, and the backend is the host.
    host_memory_of_host,
    /// Work memory on the host.
    host_memory_of_work,
    /// The host updates states, of which some lie on the device.
    host_update_of_part,
    /// The backend has no memory of the host, or cannot call it.
    host_update_without_call,
    /// Gathers read parameters from the tier while a delayed update would write them.
    delayed_parameters,
    /// Weights travel in codes, and in stage 0 none travel.
    codes_without_gathers,
    /// In stages 1 and 2 the owner of a parameter reads what the others do, and it is its master.
    codes_of_own_master,
    /// In stages 1 and 2 they are encoded from the master weights, which are not in memory then.
    codes_of_offloaded_master,
    /// Parameters are read from the tier into the lease that is decoded.
    codes_of_offloaded,
    /// The backend cannot encode.
    codes_without_backend,
    /// Frozen parameters are kept in codes, in a stage where every rank holds them uncoded.
    frozen_codes_without_shards,
    /// Gradients travel in codes, and in stage 0 every rank needs all sums.
    gradient_codes_without_shards,
    /// Gradients travel in codes, and in a communication type of their own.
    gradient_codes_beside_type,
    /// Gradients travel in codes, and are added in a tree.
    gradient_codes_in_tree,
    /// Gradients have a codec for each of two levels, and the communicator has one.
    levels_without_groups,
    /// Sums travel between replicas as floats, and in codes.
    groups_in_float_and_codes,
    /// Gradients travel in codes, and the communicator only moves what it adds.
    gradient_codes_without_exchange,
    /// The backend cannot encode gradients.
    gradient_codes_without_backend
};

} // namespace ZERO_NAMESPACE::detail

/// The one place that decides which stage, partitioner, bucketer and optimizer fit together. The
/// messages are in diagnose_stage.hpp.
namespace ZERO_NAMESPACE::detail {

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
    bool updates_on_host = false;                   ///< the host updates them
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
    if (composition.stage != 0 && composition.optimizer_is_whole_tensor
        && composition.partitioner_cuts_parameters) {
        return Conflict::optimizer_needs_whole_tensor;
    }
    if (composition.optimizer_is_whole_tensor && composition.is_stored_by_block) {
        return Conflict::whole_tensor_storage;
    }
    if (composition.has_groups && composition.stage == 0) {
        return Conflict::groups_without_shards;
    }
    if (composition.has_secondary && composition.stage != 3) {
        return Conflict::secondary_without_gathers;
    }
    if (composition.has_groups && composition.adds_in_tree) {
        return Conflict::tree_over_groups;
    }
    if (composition.sends_float_between && composition.sends_float) {
        return Conflict::groups_in_float_anyway;
    }
    if (composition.adds_in_tree && !composition.sends_exactly) {
        return Conflict::tree_rounds;
    }
    if (composition.adds_in_tree && !composition.communicator_adds_in_tree) {
        return Conflict::tree_over_communicator;
    }
    if (composition.is_offloaded && composition.is_on_device) {
        return Conflict::offload_from_device;
    }
    if (composition.master == Conflict::none && composition.offloads_masters
        && !composition.has_masters) {
        return Conflict::offload_of_own_master;
    }
    if (composition.offloads_parameters && composition.stage != 3) {
        return Conflict::offload_of_replicas;
    }
    if (composition.offloads_gradients && composition.stage < 2) {
        return Conflict::offload_of_all_gradients;
    }
    if (composition.keeps_on_host && !composition.is_on_device) {
        return Conflict::host_memory_of_host;
    }
    if (!composition.names_states_for_host) {
        return Conflict::host_memory_of_work;
    }
    if (!composition.names_all_for_host) {
        return Conflict::host_update_of_part;
    }
    if (composition.keeps_on_host && !composition.can_serve_host) {
        return Conflict::host_update_without_call;
    }
    if (composition.delays_update && composition.offloads_parameters) {
        return Conflict::delayed_parameters;
    }
    if (composition.codes_weights && composition.stage == 0) {
        return Conflict::codes_without_gathers;
    }
    if (composition.codes_weights && composition.stage != 3 && !composition.all_have_copies
        && composition.master == Conflict::none) {
        return Conflict::codes_of_own_master;
    }
    if (composition.codes_weights && composition.stage != 3
        && (composition.offloads_masters || composition.delays_update)) {
        return Conflict::codes_of_offloaded_master;
    }
    if (composition.codes_frozen && composition.stage != 3) {
        return Conflict::frozen_codes_without_shards;
    }
    if ((composition.codes_weights || composition.codes_frozen)
        && composition.offloads_parameters) {
        return Conflict::codes_of_offloaded;
    }
    if (!composition.can_encode) {
        return Conflict::codes_without_backend;
    }
    if (composition.codes_gradients && composition.stage == 0) {
        return Conflict::gradient_codes_without_shards;
    }
    if (composition.codes_gradients && composition.adds_in_tree) {
        return Conflict::gradient_codes_in_tree;
    }
    if (composition.codes_gradients && !composition.sends_gradient_type) {
        return Conflict::gradient_codes_beside_type;
    }
    if (composition.has_levels && !composition.has_groups) {
        return Conflict::levels_without_groups;
    }
    if (composition.codes_replicas && composition.sends_float_between) {
        return Conflict::groups_in_float_and_codes;
    }
    bool const is_coded = composition.codes_gradients || composition.codes_replicas;
    if (is_coded && !composition.can_exchange) {
        return Conflict::gradient_codes_without_exchange;
    }
    if (is_coded && !composition.can_encode_gradients) {
        return Conflict::gradient_codes_without_backend;
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
