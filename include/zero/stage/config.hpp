#pragma once

#include "../comm/loopback.hpp"
#include "../ops/adamw.hpp"
#include "../policy/policy_list.hpp"

#include <type_traits>

namespace zero::detail {

/// @brief The policies of a stage, each missing one replaced by its default.
template <int N, class... Policies>
struct StageConfig {
    static constexpr int stage = N;

    using Parameter = typename select_t<ParametersCategory, Parameters<float>, Policies...>::Type;
    using Partitioner = select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;
    using Bucketer = select_t<BucketerCategory, std::conditional_t<N == 3, UnitBucketer, SizeCappedBucketer>, Policies...>;
    using Communicator = select_t<CommunicatorCategory, LoopbackCommunicator, Policies...>;
    using LossScaler = select_t<LossScalerCategory, std::conditional_t<std::is_same_v<Parameter, float16>, DynamicLossScaler, NoLossScaler>, Policies...>;
    using Optimizer = select_t<OptimizerCategory, AdamW, Policies...>;
    using Reduction = select_t<GradientReductionCategory, GradientReduction<>, Policies...>;
    using MasterPolicy = select_t<MasterWeightsCategory, std::conditional_t<std::is_same_v<Parameter, float>, NoMasterWeights, MasterWeights<float>>, Policies...>;

    using Backend = typename Communicator::Backend;
    using Gradient = typename Reduction::template GradientType<Parameter>;
    using Communication = typename Reduction::template CommunicationType<Parameter>;
    using Accumulation = typename Reduction::template AccumulationType<Parameter>;
    static constexpr bool has_master = !std::is_void_v<typename MasterPolicy::Type>;
    using Master = std::conditional_t<has_master, typename MasterPolicy::Type, Parameter>;
};

} // namespace zero::detail
