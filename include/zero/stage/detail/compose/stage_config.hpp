#pragma once

#include "../../../comm/grouped_communicator.hpp"
#include "../../../comm/loopback.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/policy_category.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../layout/contiguous_partitioner.hpp"
#include "../../../layout/size_capped_bucketer.hpp"
#include "../../../ops/adamw.hpp"
#include "../../../policy/detail/policy_list.hpp"
#include "../../../policy/dynamic_loss_scaler.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../../../policy/master_weights.hpp"
#include "../../../policy/no_loss_scaler.hpp"
#include "../../../policy/offload.hpp"
#include "../../../policy/optimizer_state.hpp"
#include "../../../policy/parameters.hpp"
#include "../../../policy/wire_policy.hpp"
#include "../common/engine_config.hpp"
#include "composition_conflict.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The bucketer of a stage that names none: the partitioner's own, if it requires one.
template <int N, class Partitioner>
struct DefaultBucketer {
    using type = std::conditional_t<N == 3, UnitBucketer, SizeCappedBucketer>;
};

template <int N, class Partitioner>
    requires requires { typename Partitioner::RequiredBucketer; }
struct DefaultBucketer<N, Partitioner> {
    using type = typename Partitioner::RequiredBucketer;
};

/// @brief The master weights of one parameter type: the policy's, or none for floats, which are
/// their own master weights.
template <class MasterPolicy, class P>
using master_t = std::conditional_t<std::is_same_v<P, float>, NoMasterWeights, MasterPolicy>;

/// @brief The types that parameters of type P pass through.
template <class Reduction, class MasterPolicy, class P>
using plain_type_set_t =
    TypeSet<P, typename Reduction::template GradientType<P>,
            typename Reduction::template CommunicationType<P>,
            typename Reduction::template AccumulationType<P>, master_t<MasterPolicy, P>>;

template <class Reduction, class MasterPolicy, class P>
using reduced_type_set_t = std::conditional_t<adds_in_tree<Reduction>,
                                              InTree<plain_type_set_t<Reduction, MasterPolicy, P>>,
                                              plain_type_set_t<Reduction, MasterPolicy, P>>;

/// @brief The same with the codec of frozen parameters, if there is one.
template <class WireTypes, class Types>
using coded_frozen_t =
    std::conditional_t<std::is_same_v<typename WireTypes::FrozenCodec, Plain>, Types,
                       WithFrozenCodec<Types, typename WireTypes::FrozenCodec>>;

/// @brief The same with that of weights.
template <class WireTypes, class Types>
using coded_weights_t = std::conditional_t<
    std::is_same_v<typename WireTypes::WeightCodec, Plain>, coded_frozen_t<WireTypes, Types>,
    WithWeightCodec<coded_frozen_t<WireTypes, Types>, typename WireTypes::WeightCodec>>;

/// @brief The same with that of gradients inside a group, if there is one.
template <class WireTypes, class C, class Types>
using coded_gradients_t =
    std::conditional_t<std::is_same_v<C, Plain>, Types,
                       WithGradientCodec<Types, C, typename WireTypes::ErrorFeedback>>;

/// @brief The same with that of sums between replicas, if there are any.
template <class Communicator, class C, class Types>
using coded_replicas_t =
    std::conditional_t<std::is_same_v<C, Plain> || !GroupedCommunicator<Communicator>, Types,
                       WithReplicaCodec<Types, C>>;

/// @brief The same with all codecs of a `Wire`.
template <class WireTypes, class Communicator, class Types>
using type_set_t = coded_replicas_t<
    Communicator, typename LevelsOf<typename WireTypes::GradientCodec>::Between,
    coded_gradients_t<WireTypes, typename LevelsOf<typename WireTypes::GradientCodec>::Inside,
                      coded_weights_t<WireTypes, Types>>>;

/// @brief The options of a layout, as `EngineConfig` takes them.
template <class Partitioner, class Bucketer>
using layout_options_t = std::conditional_t<
    PartitionerHasOptions<Partitioner>,
    WithPartitionerOptions<partitioner_options_t<Partitioner>, typename Bucketer::Options>,
    typename Bucketer::Options>;

/// @brief Makes the `EngineConfig` of a stage from its policies. `StageConfig` uses it.
template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class OffloadTo, class LayoutOptions, class WireTypes, class Reduction,
          class MasterPolicy, class Policy>
struct MakeEngineConfig;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class OffloadTo, class LayoutOptions, class WireTypes, class Reduction,
          class MasterPolicy, class... P>
struct MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, OffloadTo,
                        LayoutOptions, WireTypes, Reduction, MasterPolicy, Parameters<P...>> {
    using type = EngineConfig<
        Communicator, LossScaler, Optimizer, OptimizerState, MasterPolicy, OffloadTo, LayoutOptions,
        type_set_t<WireTypes, Communicator, reduced_type_set_t<Reduction, MasterPolicy, P>>...>;
};

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
    using OffloadTo = select_t<OffloadCategory, NoOffload, Policies...>;
    using WireTypes = select_t<WireCategory, PlainWire, Policies...>;

    using EngineConfig =
        typename MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerStates, OffloadTo,
                                  layout_options_t<Partitioner, Bucketer>, WireTypes, Reduction,
                                  MasterPolicy, ParameterTypes>::type;

    /// The default policy never conflicts: parameters that are their own master weights ignore it.
    static constexpr Conflict master_conflict =
        (NamesCategory<Policies, MasterWeightsCategory> || ...)
            ? MasterConflict<MasterPolicy, ParameterTypes>::value
            : Conflict::none;
};

} // namespace ZERO_NAMESPACE::detail
