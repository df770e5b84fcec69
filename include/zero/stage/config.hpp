#pragma once

#include "../comm/loopback.hpp"
#include "../ops/adamw.hpp"
#include "../policy/policy_list.hpp"

#include <type_traits>

namespace zero::detail {

/// @brief What the code of an engine depends on: types and functors. The stage is no part of it, which an engine reads as a row of the
/// placement table, nor who cuts the layout: so compositions that differ in these share one engine.
template <class P, class G, class C, class A, class MasterWeightsPolicy, class CommunicatorPolicy, class LossScalerPolicy, class OptimizerPolicy,
          class OptimizerStatePolicy, class BucketerOptionsType>
struct EngineConfig {
    using Parameter = P;
    using Gradient = G;
    using Communication = C;
    using Accumulation = A;
    using MasterWeights = MasterWeightsPolicy;
    static constexpr MasterForm master_form = MasterWeightsPolicy::form;
    static constexpr bool has_master = master_form == MasterForm::copied; ///< in arrays of their own
    using Master = std::conditional_t<has_master, typename MasterWeightsPolicy::Type, Parameter>;
    using Communicator = CommunicatorPolicy;
    using Backend = typename Communicator::Backend;
    using LossScaler = LossScalerPolicy;
    using Optimizer = OptimizerPolicy;
    using OptimizerState = OptimizerStatePolicy;
    using BucketerOptions = BucketerOptionsType;
};

/// @brief The policies of a stage, each missing one replaced by its default.
template <int N, class... Policies>
struct StageConfig {
    static constexpr int stage = N;

    using Parameter = typename select_t<ParametersCategory, Parameters<float>, Policies...>::Type;
    using Partitioner = select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;
    using Bucketer = select_t<BucketerCategory, std::conditional_t<N == 3, UnitBucketer, SizeCappedBucketer>, Policies...>;
    using Communicator = select_t<CommunicatorCategory, LoopbackCommunicator, Policies...>;
    using LossScaler =
        select_t<LossScalerCategory, std::conditional_t<std::is_same_v<Parameter, float16>, DynamicLossScaler, NoLossScaler>, Policies...>;
    using Optimizer = select_t<OptimizerCategory, AdamW, Policies...>;
    using OptimizerStates = select_t<OptimizerStateCategory, OptimizerState<float>, Policies...>;
    using Reduction = select_t<GradientReductionCategory, GradientReduction<>, Policies...>;
    using MasterPolicy = select_t<MasterWeightsCategory,
                                  std::conditional_t<std::is_same_v<Parameter, float>, NoMasterWeights, MasterWeights<float>>, Policies...>;

    using Engine =
        EngineConfig<Parameter, typename Reduction::template GradientType<Parameter>,
                     typename Reduction::template CommunicationType<Parameter>, typename Reduction::template AccumulationType<Parameter>,
                     MasterPolicy, Communicator, LossScaler, Optimizer, OptimizerStates, typename Bucketer::Options>;
};

} // namespace zero::detail
