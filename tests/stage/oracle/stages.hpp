#pragma once

// Maps a row of the table to the stages that it names.

#include "configuration.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/policy/wire_policy.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace zero::test::oracle {

template <Number N>
using number_t = std::conditional_t<N == Number::float32, float,
                                    std::conditional_t<N == Number::bfloat16, bfloat16, float16>>;

/// `T`, or void if `T` is the default.
template <class T, class Default>
using unless_default_t = std::conditional_t<std::is_same_v<T, Default>, void, T>;

/// The type that corresponds to an enumerator.
template <auto choice, class... Choices>
using choose_t = std::tuple_element_t<static_cast<std::size_t>(choice), std::tuple<Choices...>>;

/// An optimizer that a user could write: it adds products without fusing them, also products of two
/// hyper-parameters.
struct SumOfProducts : Sgd {
    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        float const scale =
            ops::add(ops::mul(hyper.negative_learning_rate, hyper.momentum),
                     ops::mul(hyper.negative_learning_rate, 1.0F + hyper.weight_decay));
        state[0] = ops::add(ops::mul(hyper.momentum, state[0]), gradient);
        parameter = ops::add(parameter, ops::mul(scale, state[0]));
    }
};

template <std::size_t R>
struct Policies {
    static constexpr Row row = rows[R];
    using P = number_t<row.parameter>;
    using Types = std::conditional_t<row.has_floats, Parameters<P, float>, Parameters<P>>;
    using G = number_t<row.gradient>;
    using C = number_t<row.communication>;
    using A = number_t<row.accumulation>;
    using Partitioner =
        choose_t<row.partition, ContiguousPartitioner, RoundRobinPartitioner, WholeGroupPartitioner,
                 DealtGroupPartitioner, PerTensorPartitioner, BalancedPartitioner>;
    using Bucketer = choose_t<row.bucketing, SizeCappedBucketer, UnitBucketer, SingleBucketer,
                              ParameterBucketer>;
    using LossScaler = std::conditional_t<
        row.scaler == Scaler::none, NoLossScaler,
        std::conditional_t<row.scaler == Scaler::fixed, StaticLossScaler, DynamicLossScaler>>;
    using Optimizer = choose_t<row.rule, AdamW, Sgd, SumOfProducts>;
    using Reduction = GradientReduction<unless_default_t<G, P>, unless_default_t<C, G>,
                                        unless_default_t<A, float>>;
    using Master = choose_t<row.master, NoMasterWeights, MasterWeights<float>,
                            MasterWeights<float16>, SplitMasterWeights, StochasticRounding>;
    using States = choose_t<row.states, OptimizerState<float>, OptimizerState<bfloat16>,
                            BlockScaledState<float16>, BlockScaledState<float16, RoundToNearest>,
                            BlockScaledState<power8>>;
};

/// A stage with policies that replace others of their category.
template <class Stage, class... More>
struct Exchanged {
    using Type = Stage;
};
template <class Stage, class First, class... More>
struct Exchanged<Stage, First, More...> : Exchanged<typename Stage::template with<First>, More...> {
};

template <int N, std::size_t R, class Communicator = LoopbackCommunicator, class... More>
using stage_t = typename Exchanged<
    ZeroStage<N, typename Policies<R>::Types, typename Policies<R>::Partitioner,
              typename Policies<R>::Bucketer, typename Policies<R>::LossScaler,
              typename Policies<R>::Optimizer, typename Policies<R>::Reduction,
              typename Policies<R>::Master, typename Policies<R>::States, Communicator>,
    More...>::Type;

/// Returns whether the policies of a row form a valid stage.
constexpr bool is_composition(int stage, Row const& row) {
    return stage != 3
           || (row.bucketing != Bucketing::single && row.partition != Partition::whole_group
               && row.partition != Partition::dealt_group);
}

template <int N, std::size_t R>
inline constexpr bool is_stage = is_composition(N, rows[R]);

template <class Policy>
concept CodesGradients = requires { typename Policy::GradientCodec; };

template <class Policy>
concept CodesFrozen =
    CodesGradients<Policy> && !std::is_same_v<typename Policy::FrozenCodec, Plain>;

/// Returns whether a configuration is valid: its policies must form a valid stage, and in stage 3
/// the engine must own the memory.
inline bool is_legal(int stage, Configuration const& c) {
    return is_composition(stage, c.types()) && (stage != 3 || c.memory == Memory::owned);
}

} // namespace zero::test::oracle
