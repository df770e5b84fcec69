#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/gradient_reduction.hpp"
#include "../../policy/optimizer_state.hpp"
#include "../../policy/parameters.hpp"

#include "../../comm/loopback.hpp"
#include "../../core/policy_category.hpp"
#include "../../core/storage_types.hpp"
#include "../../layout/contiguous_partitioner.hpp"
#include "../../layout/size_capped_bucketer.hpp"
#include "../../layout/unit_bucketer.hpp"
#include "../../ops/adamw.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "../../policy/dynamic_loss_scaler.hpp"
#include "../../policy/gradient_reduction.hpp"
#include "../../policy/no_loss_scaler.hpp"
#include "composition_conflict.hpp"
#include "engine_config.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

template <class MasterPolicy, class ParameterTypes>
struct MasterConflict;

template <class MasterPolicy, class... P>
struct MasterConflict<MasterPolicy, Parameters<P...>> {
    static constexpr Conflict value = master_conflict_of_all<MasterPolicy, P...>();
};

/// @brief The bucketer unless one is given: the partitioner's own, if it brings one.
template <int N, class Partitioner>
struct DefaultBucketer {
    using type = std::conditional_t<N == 3, UnitBucketer, SizeCappedBucketer>;
};

template <int N, class Partitioner>
    requires requires { typename Partitioner::RequiredBucketer; }
struct DefaultBucketer<N, Partitioner> {
    using type = typename Partitioner::RequiredBucketer;
};

/// @brief Does the partitioner bring no bucketer, or this one?
template <class Partitioner, class Bucketer>
inline constexpr bool accepts_bucketer = true;

template <class Partitioner, class Bucketer>
    requires requires { typename Partitioner::RequiredBucketer; }
inline constexpr bool accepts_bucketer<Partitioner, Bucketer> =
    std::is_same_v<Bucketer, typename Partitioner::RequiredBucketer>;

/// @brief Can it cut a block of the caller's memory? There buckets are cut where they lie, and any
/// other partitioner would be ignored.
template <class Partitioner>
inline constexpr bool serves_adopted_block = std::is_same_v<Partitioner, ContiguousPartitioner>;

/// @brief The policies of a stage, each missing one replaced by its default.
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

    /// Master weights that are not asked for are none where parameters are their own.
    static constexpr Conflict master_conflict =
        (is_in<MasterWeightsCategory, Policies>() || ...)
            ? MasterConflict<MasterPolicy, ParameterTypes>::value
            : Conflict::none;
};

} // namespace ZERO_NAMESPACE::detail
