#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../backend/backend.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "composition_conflict.hpp"
#include "engine_config.hpp"
#include "stage_config.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The conflict between policies that are valid each by itself.
template <int N, class... Policies>
consteval Conflict conflict_in() {
    using Config = StageConfig<(N >= 0 && N <= 3) ? N : 0,
                               Policies...>; // NOLINT(bugprone-branch-clone): the branches are the
                                             // same for N = 0 only
    return conflict_of({.stage = N,
                        .partitioner_cuts_parameters = Config::Partitioner::cuts_parameters,
                        .partitioner_cuts_group = Config::Partitioner::cuts_group,
                        .partitioner_brings_other_bucketer = !accepts_bucketer<typename Config::Partitioner, typename Config::Bucketer>,
                        .bucketer_may_span_units = Config::Bucketer::may_span_units,
                        .optimizer_is_whole_tensor = Config::Optimizer::whole_tensor,
                        .is_on_device = requires { requires Config::EngineConfig::Backend::is_device;
}
,
    .is_stored_by_block = Config::OptimizerStates::is_block_scaled
                          || Config::MasterPolicy::form == MasterForm::stochastic,
    .master = Config::master_conflict
} // namespace ZERO_NAMESPACE::detail
);
}

/// @brief A communicator whose backend lacks something: its collectives may need no more than the
/// queues, an engine does.
template <class P>
consteval bool has_bare_backend() {
    if constexpr (is_in<CommunicatorCategory, P>()) {
        return requires { requires !Backend<typename P::Backend>; };
    } else {
        return false;
    }
}

template <class P>
consteval bool diagnose_backend_of() {
    if constexpr (has_bare_backend<P>()) {
        return diagnose_backend<typename P::Backend>();
    } else {
        return true;
    }
}

template <int N, class... Policies>
consteval bool is_accepted() {
    if constexpr ((has_bare_backend<Policies>() || ...) || !(is_valid_policy<Policies>() && ...)
                  || !are_distinct<Policies...>) {
        return false;
    } else {
        return conflict_in<N, Policies...>() == Conflict::none;
    }
}

/// @brief Says why a stage is rejected, the first cause only: a communicator without a whole
/// backend, not a policy, an incomplete one, two of a kind, a bad composition.
template <int N, class... Policies>
consteval bool diagnose_stage() {
    if constexpr ((has_bare_backend<Policies>() || ...)) {
        return (diagnose_backend_of<Policies>()
                && ...); // before its collectives, which name types of the backend
    } else if constexpr (!(is_valid_policy<Policies>() && ...)) {
        return (diagnose_policy<Policies>() && ...);
    } else if constexpr (!are_distinct<Policies...>) {
        return diagnose_duplicates<Policies...>();
    } else {
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        static_assert(conflict != Conflict::no_such_stage,
                      "zero::ZeroStage: there is no such stage; write 0, 1, 2 or 3.");
        static_assert(conflict != Conflict::bucket_spans_units,
                      "zero::ZeroStage: in stage 3 a bucket must not span units, because units are "
                      "gathered and freed one by one; "
                      "use zero::UnitBucketer or zero::SizeCappedBucketer.");
        static_assert(conflict != Conflict::units_on_few_ranks,
                      "zero::ZeroStage: in stage 3 the partitioner must not cut the whole group, "
                      "because each unit would lie on few ranks, "
                      "which then send all of it; use zero::ContiguousPartitioner, or "
                      "zero::BalancedPartitioner for whole parameters.");
        static_assert(
            conflict != Conflict::bucketer_not_the_partitioners,
            "zero::ZeroStage: the partitioner brings its own bucketer, and under another one it "
            "would not cut as it says; leave "
            "the bucketer out (zero::PerTensorPartitioner brings zero::ParameterBucketer).");
        static_assert(conflict != Conflict::whole_tensor_on_device,
                      "zero::ZeroStage: optimizers of whole parameters (Lamb, Muon) run on the "
                      "host only; on a device use AdamW, Adam, Sgd, Lion, "
                      "Adagrad or a functor of one element.");
        static_assert(conflict != Conflict::optimizer_needs_whole_tensor,
                      "zero::ZeroStage: the optimizer needs whole parameters, but the partitioner "
                      "cuts them; use zero::BalancedPartitioner or "
                      "zero::RoundRobinPartitioner.");
        static_assert(conflict != Conflict::whole_tensor_storage,
                      "zero::ZeroStage: an optimizer of whole parameters works on plain arrays; "
                      "use zero::OptimizerState<float> or "
                      "<zero::bfloat16> instead of BlockScaledState, and "
                      "zero::MasterWeights<float> instead of StochasticRounding.");
        static_assert(
            conflict != Conflict::master_of_itself
                || !std::is_same_v<typename StageConfig<0, Policies...>::EngineConfig::Parameter,
                                   float>,
            "zero::ZeroStage: float parameters are their own master weights; leave "
            "MasterWeights<float> out.");
        static_assert(
            conflict != Conflict::master_of_itself
                || std::is_same_v<typename StageConfig<0, Policies...>::EngineConfig::Parameter,
                                  float>,
            "zero::ZeroStage: master weights of the parameters' own 16-bit type are copies that "
            "keep nothing more; use "
            "zero::MasterWeights<float>, or zero::NoMasterWeights for none.");
        static_assert(conflict != Conflict::master_loses_bits,
                      "zero::ZeroStage: the type of the master weights would lose bits of the "
                      "parameters; use zero::MasterWeights<float> "
                      "(for float parameters: leave it out, they are their own master weights).");
        static_assert(conflict != Conflict::split_of_other,
                      "zero::ZeroStage: SplitMasterWeights completes bfloat16 parameters to "
                      "floats; write zero::Parameters<zero::bfloat16>, "
                      "or use zero::MasterWeights<float> for float16 parameters (and nothing for "
                      "float ones).");
        static_assert(conflict != Conflict::rounding_of_float,
                      "zero::ZeroStage: StochasticRounding is for 16-bit parameters, and float "
                      "ones are not rounded at all; leave it out, or write "
                      "zero::Parameters<zero::bfloat16>.");
        return conflict == Conflict::none;
    }
}

} // namespace ZERO_NAMESPACE::detail
