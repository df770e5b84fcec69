#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/storage_types.hpp"
#include "../../policy/master_weights.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "../../policy/optimizer_state_policy.hpp"
#include "../../policy/parameters.hpp"
#include "type_set.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief What the code of an engine depends on: types and functors. The stage is no part of it,
/// which an engine reads as a row of the placement table, nor who cuts the layout: so compositions
/// that differ in these share one engine.
template <class CommunicatorPolicy, class LossScalerPolicy, class OptimizerPolicy,
          class OptimizerStatePolicy, class MasterWeightsPolicy, class BucketerOptionsType,
          class... TypeSets>
struct EngineConfig {
    using Communicator = CommunicatorPolicy;
    using Backend = typename Communicator::Backend;
    using LossScaler = LossScalerPolicy;
    using Optimizer = OptimizerPolicy;
    using OptimizerState = OptimizerStatePolicy;
    using MasterWeights =
        MasterWeightsPolicy; ///< as chosen; each type set says what its parameters have
    using BucketerOptions = BucketerOptionsType;

    static constexpr std::size_t types = sizeof...(TypeSets);
    template <std::size_t Type>
    using TypesAt = std::tuple_element_t<Type, std::tuple<TypeSets...>>;
    using TypeSetTuple = std::tuple<TypeSets...>;
    using Parameter = typename TypesAt<0>::Parameter;
    using Gradient = typename TypesAt<0>::Gradient;

    static constexpr DType parameter_dtypes[sizeof...(TypeSets)] = {
        dtype_of<typename TypeSets::Parameter>()...}; ///< by number

    /// A payload may overflow at float16's maximum unless it is divided before it is summed.
    static constexpr bool communicates_float16 =
        (std::is_same_v<typename TypeSets::Communication, float16> || ...);

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

/// @brief The master weights of one parameter type: those of the policy, but none for floats, which
/// are their own.
template <class MasterPolicy, class P>
using master_t = std::conditional_t<std::is_same_v<P, float>, NoMasterWeights, MasterPolicy>;

template <class Reduction, class MasterPolicy, class P>
using type_set_t =
    TypeSet<P, typename Reduction::template GradientType<P>,
            typename Reduction::template CommunicationType<P>,
            typename Reduction::template AccumulationType<P>, master_t<MasterPolicy, P>>;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class BucketerOptions, class Reduction, class MasterPolicy, class Policy>
struct MakeEngineConfig;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class BucketerOptions, class Reduction, class MasterPolicy, class... P>
struct MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, BucketerOptions,
                        Reduction, MasterPolicy, Parameters<P...>> {
    using type = EngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, MasterPolicy,
                              BucketerOptions, type_set_t<Reduction, MasterPolicy, P>...>;
};

} // namespace ZERO_NAMESPACE::detail
