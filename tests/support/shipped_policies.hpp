#pragma once

// Every policy that ships, by category: the type lists of the conformance suites. A test compares
// them with the headers.

#include <zero/core/type_name.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/policy/wire.hpp>
#include <zero/zero.hpp>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace zero::test {

using ShippedParameters = std::tuple<Parameters<float>, Parameters<bfloat16>, Parameters<float16>,
                                     Parameters<bfloat16, float>>;
using ShippedPartitioners =
    std::tuple<ContiguousPartitioner, PerTensorPartitioner, WholeGroupPartitioner,
               DealtGroupPartitioner, ProportionalPartitioner, RoundRobinPartitioner,
               BalancedPartitioner, WholeMatrixPartitioner>;
using ShippedBucketers =
    std::tuple<SizeCappedBucketer, UnitBucketer, ParameterBucketer, SingleBucketer>;
using ShippedCommunicators = std::tuple<LoopbackCommunicator, Recording<LoopbackCommunicator>,
                                        Checked<LoopbackCommunicator>>;
using ShippedLossScalers = std::tuple<NoLossScaler, StaticLossScaler, DynamicLossScaler>;
using ShippedMasterWeights = std::tuple<MasterWeights<float>, MasterWeights<float16>,
                                        NoMasterWeights, SplitMasterWeights, StochasticRounding>;
using ShippedOptimizers = std::tuple<AdamW, Adam, Sgd, Lion, Adagrad, Lamb, Muon>;
using ShippedOptimizerStates = std::tuple<OptimizerState<float>, OptimizerState<bfloat16>,
                                          OptimizerState<bfloat16, RoundToNearest>,
                                          BlockScaledState<float16>, BlockScaledState<power8>>;
using ShippedGradientReductions =
    std::tuple<GradientReduction<>, GradientReduction<float>, GradientReduction<void, float16>,
               GradientReduction<float, float, bfloat16>>;
/// @brief A tier that needs no library.
struct NoTier {
    struct Options {};
    static void add_to(Hash& /*hash*/, Options const& /*options*/) noexcept {}
};
using ShippedOffloads = std::tuple<NoOffload, Offload<To<NoTier, BufferKind::optimizer_state>>>;
using ShippedWires = std::tuple<PlainWire, Wire<>, Wire<Int8Blocks>, Wire<Int4Blocks>>;

template <class... Lists>
using joined = decltype(std::tuple_cat(std::declval<Lists>()...));
/// @brief All policies but the communicators, which are objects.
using ShippedValuePolicies =
    joined<ShippedParameters, ShippedPartitioners, ShippedBucketers, ShippedLossScalers,
           ShippedMasterWeights, ShippedOptimizers, ShippedOptimizerStates,
           ShippedGradientReductions, ShippedOffloads, ShippedWires>;

namespace detail {

template <class Policy, class... Entry>
std::string unless_listed(std::tuple<Entry...> const*) {
    return (std::is_same_v<Policy, typename Entry::Policy> || ...) ? "" : type_name<Policy>() + " ";
}

template <class Entries, class... Policy>
std::string unlisted(std::tuple<Policy...> const*) {
    return (std::string() + ... + unless_listed<Policy>(static_cast<Entries const*>(nullptr)));
}

} // namespace detail

/// @brief Returns the names of shipped policies that have no entry in the list of a conformance
/// suite.
template <class Shipped, class Entries>
std::string policies_without_entry() {
    return detail::unlisted<Entries>(static_cast<Shipped const*>(nullptr));
}

} // namespace zero::test
