#pragma once

#include "../comm/loopback.hpp"
#include "../core/dtype.hpp"
#include "../ops/adamw.hpp"
#include "../policy/policy_list.hpp"
#include "compatibility.hpp"
#include "type_list.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace zero::detail {

/// @brief What the code of an engine depends on: types and functors. The stage is no part of it, which an engine reads as a row of the
/// placement table, nor who cuts the layout: so compositions that differ in these share one engine.
template <class CommunicatorPolicy, class LossScalerPolicy, class OptimizerPolicy, class OptimizerStatePolicy, class MasterWeightsPolicy,
          class BucketerOptionsType, class... TypeSets>
struct EngineConfig {
    using Communicator = CommunicatorPolicy;
    using Backend = typename Communicator::Backend;
    using LossScaler = LossScalerPolicy;
    using Optimizer = OptimizerPolicy;
    using OptimizerState = OptimizerStatePolicy;
    using MasterWeights = MasterWeightsPolicy; ///< as chosen; each type set says what its parameters have
    using BucketerOptions = BucketerOptionsType;

    static constexpr std::size_t types = sizeof...(TypeSets);
    template <std::size_t Type>
    using TypesAt = std::tuple_element_t<Type, std::tuple<TypeSets...>>;
    using TypeSetTuple = std::tuple<TypeSets...>;
    using Parameter = typename TypesAt<0>::Parameter;
    using Gradient = typename TypesAt<0>::Gradient;

    static constexpr DType parameter_dtypes[sizeof...(TypeSets)] = {dtype_of<typename TypeSets::Parameter>()...}; ///< by number

    /// A payload may overflow at float16's maximum unless it is divided before it is summed.
    static constexpr bool communicates_float16 = (std::is_same_v<typename TypeSets::Communication, float16> || ...);

    /// The number of the set whose parameters are T; `types` when there is none.
    template <class T>
    static constexpr std::size_t index_of() noexcept {
        bool const found[] = {std::is_same_v<typename TypeSets::Parameter, T>...};
        std::size_t index = 0;
        while (index < types && !found[index]) {
            ++index;
        }
        return index;
    }
    template <class T>
    using TypesOf = TypesAt<index_of<T>()>;

    /// One element of `Part` for each type of parameters.
    template <template <class, class> class Part>
    using ForTypes = std::tuple<Part<EngineConfig, TypeSets>...>;
};

/// @brief The master weights of one parameter type: those of the policy, but none for floats, which are their own.
template <class MasterPolicy, class P>
using master_t = std::conditional_t<std::is_same_v<P, float>, NoMasterWeights, MasterPolicy>;

template <class MasterPolicy, class ParameterTypes>
struct MasterConflict;

template <class MasterPolicy, class... P>
struct MasterConflict<MasterPolicy, Parameters<P...>> {
    static constexpr Conflict value = master_conflict_of_all<MasterPolicy, P...>();
};

template <class Reduction, class MasterPolicy, class P>
using type_set_t = TypeSet<P, typename Reduction::template GradientType<P>, typename Reduction::template CommunicationType<P>,
                           typename Reduction::template AccumulationType<P>, master_t<MasterPolicy, P>>;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState, class BucketerOptions, class Reduction,
          class MasterPolicy, class Policy>
struct MakeEngineConfig;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState, class BucketerOptions, class Reduction,
          class MasterPolicy, class... P>
struct MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, BucketerOptions, Reduction, MasterPolicy, Parameters<P...>> {
    using type = EngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, MasterPolicy, BucketerOptions, type_set_t<Reduction, MasterPolicy, P>...>;
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

    using ParameterTypes = select_t<ParametersCategory, Parameters<float>, Policies...>;
    using Partitioner = select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;
    using Bucketer = select_t<BucketerCategory, typename DefaultBucketer<N, Partitioner>::type, Policies...>;
    using Communicator = select_t<CommunicatorCategory, LoopbackCommunicator, Policies...>;
    using LossScaler = select_t<LossScalerCategory,
                                std::conditional_t<ParameterTypes::template contains<float16>, DynamicLossScaler, NoLossScaler>, Policies...>;
    using Optimizer = select_t<OptimizerCategory, AdamW, Policies...>;
    using OptimizerStates = select_t<OptimizerStateCategory, OptimizerState<float>, Policies...>;
    using Reduction = select_t<GradientReductionCategory, GradientReduction<>, Policies...>;
    using MasterPolicy = select_t<MasterWeightsCategory, MasterWeights<float>, Policies...>;

    using Engine = typename MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerStates, typename Bucketer::Options, Reduction, MasterPolicy,
                                             ParameterTypes>::type;

    /// Master weights that are not asked for are none where parameters are their own.
    static constexpr Conflict master_conflict =
        (is_in<MasterWeightsCategory, Policies>() || ...) ? MasterConflict<MasterPolicy, ParameterTypes>::value : Conflict::none;
};

} // namespace zero::detail
