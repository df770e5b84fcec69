#pragma once

#include "../comm/loopback.hpp"
#include "../ops/adamw.hpp"
#include "../policy/policy_list.hpp"

#include <type_traits>

namespace zero::detail {

/// @brief What the code of an engine depends on: types and functors. The stage is no part of it, which an engine reads as a row of the
/// placement table, nor who cuts the layout: so compositions that differ in these share one engine.
template <class P, class G, class C, class A, class MasterType, class CommunicatorPolicy, class LossScalerPolicy, class OptimizerPolicy,
          class BucketerOptionsType>
struct EngineConfig {
    using Parameter = P;
    using Gradient = G;
    using Communication = C;
    using Accumulation = A;
    static constexpr bool has_master = !std::is_void_v<MasterType>;
    using Master = std::conditional_t<has_master, MasterType, Parameter>;
    using Communicator = CommunicatorPolicy;
    using Backend = typename Communicator::Backend;
    using LossScaler = LossScalerPolicy;
    using Optimizer = OptimizerPolicy;
    using BucketerOptions = BucketerOptionsType;
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
inline constexpr bool accepts_bucketer<Partitioner, Bucketer> = std::is_same_v<Bucketer, typename Partitioner::RequiredBucketer>;

/// @brief Can it cut a block of the caller's memory? There buckets are cut where they lie, and any other partitioner would be ignored.
template <class Partitioner>
inline constexpr bool serves_adopted_block = std::is_same_v<Partitioner, ContiguousPartitioner>;

/// @brief The policies of a stage, each missing one replaced by its default.
template <int N, class... Policies>
struct StageConfig {
    static constexpr int stage = N;

    using Parameter = typename select_t<ParametersCategory, Parameters<float>, Policies...>::Type;
    using Partitioner = select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;
    using Bucketer = select_t<BucketerCategory, typename DefaultBucketer<N, Partitioner>::type, Policies...>;
    using Communicator = select_t<CommunicatorCategory, LoopbackCommunicator, Policies...>;
    using LossScaler =
        select_t<LossScalerCategory, std::conditional_t<std::is_same_v<Parameter, float16>, DynamicLossScaler, NoLossScaler>, Policies...>;
    using Optimizer = select_t<OptimizerCategory, AdamW, Policies...>;
    using Reduction = select_t<GradientReductionCategory, GradientReduction<>, Policies...>;
    using MasterPolicy = select_t<MasterWeightsCategory,
                                  std::conditional_t<std::is_same_v<Parameter, float>, NoMasterWeights, MasterWeights<float>>, Policies...>;

    using Engine =
        EngineConfig<Parameter, typename Reduction::template GradientType<Parameter>,
                     typename Reduction::template CommunicationType<Parameter>, typename Reduction::template AccumulationType<Parameter>,
                     typename MasterPolicy::Type, Communicator, LossScaler, Optimizer, typename Bucketer::Options>;
};

} // namespace zero::detail
