#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../layout/partitioner.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../../policy/optimizer_state_policy.hpp"
#include "../../../policy/wire_policy.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The options of a stage's layout: those of the bucketer, and of the partitioner if it has
/// any. Without, an engine bears the name of the bucketer's options alone.
template <class PartitionerOptionsType, class BucketerOptionsType>
struct WithPartitionerOptions {};

template <class LayoutOptionsType>
struct LayoutOptionsOf {
    using Partitioner = NoPartitionerOptions;
    using Bucketer = LayoutOptionsType;
};

template <class PartitionerOptionsType, class BucketerOptionsType>
struct LayoutOptionsOf<WithPartitionerOptions<PartitionerOptionsType, BucketerOptionsType>> {
    using Partitioner = PartitionerOptionsType;
    using Bucketer = BucketerOptionsType;
};

/// @brief Whether the weights of a `TypeSet` travel in codes.
template <class Types>
inline constexpr bool has_weight_codec = requires { typename Types::WeightCodec; };

/// @brief Whether its gradients do.
template <class Types>
inline constexpr bool has_gradient_codec = requires { typename Types::GradientCodec; };

/// @brief Whether the sums that replicas add do.
template <class Types>
inline constexpr bool has_replica_codec = requires { typename Types::ReplicaCodec; };

/// @brief Whether its frozen parameters lie in codes.
template <class Types>
inline constexpr bool has_frozen_codec = requires { typename Types::FrozenCodec; };

/// @brief What is kept of the errors of encoded gradients.
template <class Types>
struct FeedbackOf {
    using type = NoFeedback;
};
template <class Types>
    requires has_gradient_codec<Types>
struct FeedbackOf<Types> {
    using type = typename Types::Feedback;
};

/// @brief The types that an engine is compiled for. Stage and partitioner are run-time values, so
/// compositions that differ only in them share one instantiation.
template <class CommunicatorPolicy, class LossScalerPolicy, class OptimizerPolicy,
          class OptimizerStatePolicy, class MasterWeightsPolicy, class OffloadPolicy,
          class LayoutOptionsType, class... TypeSets>
struct EngineConfig {
    using Communicator = CommunicatorPolicy;
    using Backend = typename Communicator::Backend;
    using LossScaler = LossScalerPolicy;
    using Optimizer = OptimizerPolicy;
    using OptimizerState = OptimizerStatePolicy;
    using MasterWeights = MasterWeightsPolicy; ///< the chosen policy; each type set names the
                                               ///< master weights of its parameters
    using Offload = OffloadPolicy;
    using PartitionerOptions = typename LayoutOptionsOf<LayoutOptionsType>::Partitioner;
    using BucketerOptions = typename LayoutOptionsOf<LayoutOptionsType>::Bucketer;

    static constexpr bool rounds_states = rounds_states_stochastically<OptimizerState>;

    static constexpr std::size_t types = sizeof...(TypeSets);
    template <std::size_t Type>
    using TypesAt = std::tuple_element_t<Type, std::tuple<TypeSets...>>;
    using TypeSetTuple = std::tuple<TypeSets...>;
    using Feedback = typename FeedbackOf<TypesAt<0>>::type;
    using Parameter = typename TypesAt<0>::Parameter;
    using Gradient = typename TypesAt<0>::Gradient;

    static constexpr DType parameter_dtypes[sizeof...(TypeSets)] = {
        dtype_of<typename TypeSets::Parameter>()...}; ///< by index

    /// Whether a parameter type has master weights beside the parameters.
    static constexpr bool has_masters =
        ((TypeSets::master_form == MasterForm::copied || TypeSets::master_form == MasterForm::split)
         || ...);

    /// Whether any payload is float16. It may overflow unless it is divided before it is summed.
    static constexpr bool communicates_float16 =
        ((std::is_same_v<typename TypeSets::Communication, float16>
          && !has_gradient_codec<TypeSets>)
         || ...);

    /// Whether gradients are added as micro-batches of one tree.
    static constexpr bool adds_in_tree = (TypeSets::adds_in_tree || ...);

    /// Returns the index of the set whose parameters are T; `types` if there is none.
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

    /// One `Part` per parameter type.
    template <template <class, class> class Part>
    using ForTypes = std::tuple<Part<EngineConfig, TypeSets>...>;
};

/// @brief The types that one kind of parameters passes through in a step. A model has one set per
/// parameter type.
template <class P, class G, class C, class A, class MasterPolicy>
struct TypeSet {
    using Parameter = P;
    using Gradient = G;
    using Communication = C;
    using Accumulation = A;
    using MasterWeights = MasterPolicy;
    static constexpr bool adds_in_tree = false; ///< gradients are added in rank order
    static constexpr MasterForm master_form = MasterPolicy::form;
    static constexpr bool has_master = master_form == MasterForm::copied; ///< as separate arrays
    using Master = std::conditional_t<has_master, typename MasterPolicy::Type, Parameter>;
};

/// @brief The same, with gradients that are added as micro-batches of one tree.
template <class Types>
struct InTree : Types {
    static constexpr bool adds_in_tree = true;
};

/// @brief The same, with weights that travel in the blocks of a codec.
template <class Types, class C>
struct WithWeightCodec : Types {
    using WeightCodec = C;
};

/// @brief The same, with frozen parameters that lie in the blocks of a codec.
template <class Types, class C>
struct WithFrozenCodec : Types {
    using FrozenCodec = C;
};

/// @brief The same, with gradients that travel in the blocks of a codec.
template <class Types, class C, class F>
struct WithGradientCodec : Types {
    using GradientCodec = C;
    using Feedback = F;
};

/// @brief The same, with sums that travel between replicas in the blocks of a codec.
template <class Types, class C>
struct WithReplicaCodec : Types {
    using ReplicaCodec = C;
};

/// @brief Whether weights travel in codes. All types of an engine have one codec.
template <class Config>
inline constexpr bool codes_weights = has_weight_codec<typename Config::template TypesAt<0>>;

/// @brief Whether frozen parameters lie in codes.
template <class Config>
inline constexpr bool codes_frozen = has_frozen_codec<typename Config::template TypesAt<0>>;

/// @brief Whether gradients travel in codes.
template <class Config>
inline constexpr bool codes_gradients = has_gradient_codec<typename Config::template TypesAt<0>>;

/// @brief Whether the sums that replicas add do.
template <class Config>
inline constexpr bool codes_replicas = has_replica_codec<typename Config::template TypesAt<0>>;

/// @brief Whether ranks keep the errors of encoded gradients.
template <class Config>
inline constexpr bool keeps_errors = !std::is_same_v<typename Config::Feedback, NoFeedback>;

/// @brief Whether the update of a step runs during the next one (`DelayedUpdate`).
template <class Config>
inline constexpr bool delays_update = requires { requires Config::Offload::delays_update; };

/// @brief Whether the states of an engine lie in memory of the host, and the host updates them,
/// while the backend is a device (`Offload<To<HostMemory, kinds...>>`).
template <class Config>
inline constexpr bool updates_on_host = requires { requires Config::Offload::updates_on_host; };

/// @brief Whether states of a device lie in memory of the host (`HostMemory`), whoever updates.
template <class Config>
inline constexpr bool has_states_on_host = requires { Config::Offload::keeps(BufferKind{}); };

/// @brief Returns whether buffers of a kind do.
template <class Config>
[[nodiscard]] constexpr bool lies_on_host([[maybe_unused]] BufferKind kind) noexcept {
    if constexpr (has_states_on_host<Config>) {
        return Config::Offload::keeps(kind);
    } else {
        return false;
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

template <class Config>
class Engine;

namespace detail {

template <class EngineType>
struct ConfigOf;
template <class Config>
struct ConfigOf<Engine<Config>> {
    using type = Config;
};

template <class Stage>
using config_of_t = typename ConfigOf<typename Stage::EngineType>::type;

} // namespace detail
} // namespace ZERO_NAMESPACE
