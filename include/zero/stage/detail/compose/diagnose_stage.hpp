#pragma once

#include "../../../core/detail/require_cxx20.hpp"

#include "../../../backend/backend.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../policy/detail/diagnose_policies.hpp"
#include "composition_conflict.hpp"
#include "is_accepted.hpp"
#include "stage_config.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

template <class P>
consteval bool diagnose_backend_of() {
    if constexpr (HasBareBackend<P>) {
        return diagnose_backend<typename P::Backend>();
    } else {
        return true;
    }
}

/// @brief Reports why a stage is rejected, the first cause only: a communicator with an incomplete
/// backend, an argument that is not a policy, an incomplete policy, two of a category, or a
/// `Conflict`.
template <int N, class... Policies>
consteval bool diagnose_stage() {
    if constexpr ((HasBareBackend<Policies> || ...)) {
        // before the check of its collectives, which name types of the backend
        return (diagnose_backend_of<Policies>() && ...);
    } else if constexpr (!(CompletePolicy<Policies> && ...)) {
        return (diagnose_policy<Policies>() && ...);
    } else if constexpr (!are_distinct<Policies...>) {
        return diagnose_duplicates<Policies...>();
    } else {
        using First = typename StageConfig<0, Policies...>::EngineConfig::Parameter;
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        constexpr bool is_own_master = conflict == Conflict::master_of_itself;
        constexpr bool is_float = std::is_same_v<First, float>;
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
            "zero::ZeroStage: the partitioner requires its own bucketer, and with another one it "
            "would not cut as it says; leave the bucketer out (zero::PerTensorPartitioner requires "
            "zero::ParameterBucketer).");
        static_assert(conflict != Conflict::optimizer_needs_whole_tensor,
                      "zero::ZeroStage: the optimizer needs whole parameters, but the partitioner "
                      "cuts them; use zero::BalancedPartitioner or "
                      "zero::RoundRobinPartitioner. zero::Muon also takes "
                      "zero::WholeMatrixPartitioner.");
        static_assert(conflict != Conflict::whole_tensor_storage,
                      "zero::ZeroStage: an optimizer of whole parameters works on plain arrays; "
                      "use zero::OptimizerState<float> or "
                      "<zero::bfloat16> instead of BlockScaledState, and "
                      "zero::MasterWeights<float> instead of StochasticRounding.");
        static_assert(!is_own_master || !is_float,
                      "zero::ZeroStage: float parameters are their own master weights; leave "
                      "MasterWeights<float> out.");
        static_assert(!is_own_master || is_float,
                      "zero::ZeroStage: master weights of the parameters' own 16-bit type are "
                      "copies that keep nothing more; use zero::MasterWeights<float>, or "
                      "zero::NoMasterWeights for none.");
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
        static_assert(conflict != Conflict::tree_over_communicator,
                      "zero::ZeroStage: TreeReduction needs a communicator that adds in a tree "
                      "(reduce_scatter with zero::ops::TreeSum, and position()), and this one has "
                      "its own order; "
                      "use zero::LoopbackCommunicator, zero::mpi::Communicator, "
                      "zero::torch::ProcessGroupCommunicator, "
                      "zero::Loopback<zero::cuda::Backend>, zero::cuda::NcclCommunicator with "
                      "cuda::NcclOrder::rank or zero::Hierarchical over these, or "
                      "zero::GradientReduction.");
        static_assert(conflict != Conflict::groups_without_shards,
                      "zero::ZeroStage: zero::Groups shards the states over a group, and stage 0 "
                      "shards nothing; use stage 1, 2 or 3, or the communicator without Groups.");
        static_assert(conflict != Conflict::groups_in_float_anyway,
                      "zero::ZeroStage: gradients are communicated as float, so sums are sent "
                      "between replicas as float anyway; write zero::Hybrid instead of "
                      "zero::HybridInFloat.");
        static_assert(conflict != Conflict::secondary_without_gathers,
                      "zero::ZeroStage: zero::Secondary copies what the forward pass gathers, and "
                      "below stage 3 nothing is gathered; use stage 3, or the communicator without "
                      "zero::Secondary.");
        static_assert(conflict != Conflict::tree_over_groups,
                      "zero::ZeroStage: zero::Groups adds inside a group and then between groups, "
                      "and TreeReduction adds all micro-batches in one tree; use the communicator "
                      "without Groups, or zero::GradientReduction.");
        static_assert(conflict != Conflict::tree_rounds,
                      "zero::ZeroStage: TreeReduction sends the gradient of each micro-batch as it "
                      "is, and this communication type cannot hold all values of the gradient "
                      "type; leave it out, or use float.");
        static_assert(conflict != Conflict::offload_from_device,
                      "zero::ZeroStage: a FileTier reads and writes memory of the host, and this "
                      "communicator's backend is a device; leave Offload out, or use a "
                      "communicator on the host.");
        static_assert(conflict != Conflict::offload_of_own_master,
                      "zero::ZeroStage: there are no master weights to offload, because the "
                      "parameters are their own; leave zero::BufferKind::master_weights out.");
        static_assert(conflict != Conflict::offload_of_replicas,
                      "zero::ZeroStage: below stage 3 every rank reads all parameters in every "
                      "pass, so they stay in memory; use stage 3, or leave "
                      "zero::BufferKind::parameters out of Offload.");
        static_assert(conflict != Conflict::offload_of_all_gradients,
                      "zero::ZeroStage: below stage 2 every rank adds its gradients of the whole "
                      "model, which stay on the device; use stage 2 or 3, or leave "
                      "zero::BufferKind::gradients out of Offload.");
        static_assert(conflict != Conflict::host_memory_of_work,
                      "zero::ZeroStage: HostMemory holds states and the sums of gradients; name "
                      "some of zero::BufferKind::optimizer_state, master_weights, gradients and "
                      "parameters, and nothing else.");
        static_assert(conflict != Conflict::host_memory_of_host,
                      "zero::ZeroStage: HostMemory is for states of a device, and this "
                      "communicator's backend keeps them in memory of the host anyway; leave "
                      "Offload out, or use zero::FileTier.");
        static_assert(conflict != Conflict::host_update_of_part,
                      "zero::ZeroStage: the host updates what lies in HostMemory, so all of it "
                      "must lie there; name zero::BufferKind::optimizer_state, and "
                      "zero::BufferKind::master_weights if the parameters are not their own, or "
                      "write zero::Offload<zero::To<...>, zero::UpdateOnDevice>.");
        static_assert(conflict != Conflict::host_update_without_call,
                      "zero::ZeroStage: HostMemory needs a backend that has memory of the host and "
                      "can call it; give it 'static zero::MemoryResource& staging_memory()' and "
                      "'static void run_on_host(Queue, void (*)(void*), void*)', as "
                      "zero::cuda::Backend has them.");
        static_assert(conflict != Conflict::delayed_parameters,
                      "zero::ZeroStage: with DelayedUpdate a pass reads the parameters that the "
                      "last update has not changed yet, and the file, or the memory of the host, "
                      "would hold both; leave zero::BufferKind::parameters or zero::DelayedUpdate "
                      "out of Offload.");
        static_assert(conflict != Conflict::codes_without_gathers,
                      "zero::ZeroStage: zero::Wire encodes the weights that ranks gather, and "
                      "stage 0 gathers none; use stage 1, 2 or 3, or leave zero::Wire out.");
        static_assert(conflict != Conflict::codes_of_own_master,
                      "zero::ZeroStage: in stages 1 and 2 every rank reads encoded weights, so a "
                      "parameter that is its own master would lose bits in each step; use 16-bit "
                      "parameters with zero::MasterWeights<float>, or stage 3, whose shards stay "
                      "exact.");
        static_assert(conflict != Conflict::codes_of_offloaded_master,
                      "zero::ZeroStage: in stages 1 and 2 zero::Wire encodes master weights, which "
                      "must lie in memory when they are sent; leave "
                      "zero::BufferKind::master_weights and zero::DelayedUpdate out of Offload, or "
                      "use stage 3.");
        static_assert(conflict != Conflict::codes_of_offloaded,
                      "zero::ZeroStage: offloaded parameters are read into the memory that "
                      "zero::Wire and zero::FrozenWeights decode to; leave "
                      "zero::BufferKind::parameters out of Offload, or the codec out.");
        static_assert(conflict != Conflict::frozen_codes_without_shards,
                      "zero::ZeroStage: zero::FrozenWeights keeps the shards of frozen parameters "
                      "in codes, and below stage 3 every rank reads all of them in place; use "
                      "stage 3, or leave zero::FrozenWeights out.");
        static_assert(conflict != Conflict::codes_without_backend,
                      "zero::ZeroStage: zero::Wire and zero::FrozenWeights need a backend that "
                      "encodes; give it 'encode' and 'decode' as zero::HostBackend has them.");
        static_assert(conflict != Conflict::gradient_codes_without_shards,
                      "zero::ZeroStage: zero::Wire encodes the gradients that each rank adds for "
                      "its share, and in stage 0 every rank gets all sums; use stage 1, 2 or 3, or "
                      "leave the second argument of zero::Wire out.");
        static_assert(conflict != Conflict::gradient_codes_in_tree,
                      "zero::ZeroStage: TreeReduction sends the gradient of each micro-batch as it "
                      "is, so that no bit depends on the number of ranks, and zero::Wire rounds "
                      "it; use zero::GradientReduction, or leave the second argument of zero::Wire "
                      "out.");
        static_assert(conflict != Conflict::gradient_codes_beside_type,
                      "zero::ZeroStage: zero::Wire sends gradients in codes, so the communication "
                      "type of zero::GradientReduction would never be used; leave that type or the "
                      "second argument of zero::Wire out.");
        static_assert(conflict != Conflict::levels_without_groups,
                      "zero::ZeroStage: zero::Level says how gradients travel inside a group and "
                      "between replicas, and this communicator has no replicas; give zero::Wire "
                      "one codec of gradients instead, or use zero::Groups with zero::Hybrid.");
        static_assert(conflict != Conflict::groups_in_float_and_codes,
                      "zero::ZeroStage: zero::Wire sends sums between replicas in codes, so "
                      "zero::HybridInFloat would send no float; write zero::Hybrid, or "
                      "zero::Level<codec, zero::Plain> as the second argument of zero::Wire.");
        static_assert(conflict != Conflict::gradient_codes_without_exchange,
                      "zero::ZeroStage: encoded gradients are exchanged and then added, and this "
                      "communicator has no 'exchange' (zero::Hierarchical has none); use a flat "
                      "communicator, or leave the second argument of zero::Wire out.");
        static_assert(conflict != Conflict::gradient_codes_without_backend,
                      "zero::ZeroStage: zero::Wire needs a backend that encodes gradients; give it "
                      "'encode' of zero::CodedSlice, 'decode_sum' and, for zero::ErrorFeedback, "
                      "'encode_with_feedback' as zero::HostBackend has them.");
        return conflict == Conflict::none;
    }
}

/// @brief Reports that a stage is rejected, where the type of the result is asked for.
template <int N, class... Policies>
constexpr auto judge_stage() {
    static_assert(
        diagnose_stage<N, Policies...>(),
        "zero::ZeroStage: a policy was rejected; the error above says which one and why.");
    return true;
}

} // namespace ZERO_NAMESPACE::detail
