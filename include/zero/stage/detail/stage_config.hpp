#pragma once

#include "../../comm/loopback.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../core/storage_types.hpp"
#include "../../layout/contiguous_partitioner.hpp"
#include "../../ops/adamw.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "../../policy/dynamic_loss_scaler.hpp"
#include "../../policy/gradient_reduction.hpp"
#include "../../policy/master_weights.hpp"
#include "../../policy/no_loss_scaler.hpp"
#include "../../policy/optimizer_state.hpp"
#include "../../policy/parameters.hpp"
#include "conflict.hpp"
#include "default_bucketer.hpp"
#include "make_engine_config.hpp"
#include "master_conflict.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The policies of a stage, with defaults for the missing ones.
template <int N, class... Policies>
struct StageConfig {
    static constexpr int stage = N;

    using ParameterTypes = select_t<ParametersCategory, Parameters<float>, Policies...>;
    using Partitioner = select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;
    using Bucketer =
        select_t<BucketerCategory, typename DefaultBucketer<N, Partitioner>::type, Policies...>;
    using Communicator = select_t<CommunicatorCategory, LoopbackCommunicator, Policies...>;
    using LossScaler = select_t<LossScalerCategory,
                                std::conditional_t<ParameterTypes::template contains<float16>,
                                                   DynamicLossScaler, NoLossScaler>,
                                Policies...>;
    using Optimizer = select_t<OptimizerCategory, AdamW, Policies...>;
    using OptimizerStates = select_t<OptimizerStateCategory, OptimizerState<float>, Policies...>;
    using Reduction = select_t<GradientReductionCategory, GradientReduction<>, Policies...>;
    using MasterPolicy = select_t<MasterWeightsCategory, MasterWeights<float>, Policies...>;

    using EngineConfig = typename MakeEngineConfig<Communicator, LossScaler, Optimizer,
                                                   OptimizerStates, typename Bucketer::Options,
                                                   Reduction, MasterPolicy, ParameterTypes>::type;

    /// The default policy never conflicts: parameters that are their own master weights ignore it.
    static constexpr Conflict master_conflict =
        (is_in<MasterWeightsCategory, Policies>() || ...)
            ? MasterConflict<MasterPolicy, ParameterTypes>::value
            : Conflict::none;
};

} // namespace ZERO_NAMESPACE::detail
