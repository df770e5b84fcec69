#include "support/catch.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/detail/diagnose_policies.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/master_weights.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/optimizer_state.hpp>
#include <zero/policy/static_loss_scaler.hpp>

namespace zero::test::policy_list_test {

namespace {

struct NoPolicy {};
struct UnknownCategory {
    struct Strange {};
    using policy_category = Strange;
};

template <class... Policies>
using Optimizing = zero::detail::select_t<OptimizerCategory, AdamW, Policies...>;
template <class... Policies>
using Partitioning =
    zero::detail::select_t<PartitionerCategory, ContiguousPartitioner, Policies...>;

} // namespace

TEST_CASE("A missing policy is the default") {
    STATIC_REQUIRE(std::is_same_v<Optimizing<>, AdamW>);
    STATIC_REQUIRE(std::is_same_v<Optimizing<RoundRobinPartitioner, DynamicLossScaler>, AdamW>);
    STATIC_REQUIRE(std::is_same_v<Partitioning<Sgd>, ContiguousPartitioner>);
}

TEST_CASE("A policy is found at any position of the list") {
    STATIC_REQUIRE(std::is_same_v<Optimizing<Sgd, RoundRobinPartitioner, DynamicLossScaler>, Sgd>);
    STATIC_REQUIRE(std::is_same_v<Optimizing<RoundRobinPartitioner, Sgd, DynamicLossScaler>, Sgd>);
    STATIC_REQUIRE(std::is_same_v<Optimizing<RoundRobinPartitioner, DynamicLossScaler, Sgd>, Sgd>);
    STATIC_REQUIRE(std::is_same_v<Partitioning<RoundRobinPartitioner, DynamicLossScaler, Sgd>,
                                  RoundRobinPartitioner>);
    STATIC_REQUIRE(std::is_same_v<Partitioning<Sgd, DynamicLossScaler, RoundRobinPartitioner>,
                                  RoundRobinPartitioner>);
}

TEST_CASE("Types that are not policies are skipped and not counted") {
    STATIC_REQUIRE(std::is_same_v<Optimizing<NoPolicy, int, Sgd>, Sgd>);
    STATIC_REQUIRE(std::is_same_v<Optimizing<NoPolicy>, AdamW>);
    STATIC_REQUIRE(zero::detail::is_single<OptimizerCategory, NoPolicy, int, UnknownCategory>);
}

TEST_CASE("A category is single if it occurs at most once") {
    STATIC_REQUIRE(zero::detail::is_single<OptimizerCategory>);
    STATIC_REQUIRE(zero::detail::is_single<LossScalerCategory, Sgd, NoLossScaler, AdamW>);
    STATIC_REQUIRE_FALSE(zero::detail::is_single<OptimizerCategory, Sgd, NoLossScaler, AdamW>);
}

TEST_CASE("Two policies of one category are not distinct, at any position") {
    STATIC_REQUIRE(zero::detail::are_distinct<>);
    STATIC_REQUIRE(
        zero::detail::are_distinct<Parameters<float>, UnitBucketer, ContiguousPartitioner,
                                   NoLossScaler, NoMasterWeights, Sgd, GradientReduction<>>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<Sgd, AdamW>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<Sgd, UnitBucketer, Sgd>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<Parameters<float>, Sgd, Parameters<bfloat16>>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<ContiguousPartitioner, RoundRobinPartitioner>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<UnitBucketer, SingleBucketer>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<NoLossScaler, StaticLossScaler>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<NoMasterWeights, MasterWeights<float>>);
    STATIC_REQUIRE_FALSE(
        zero::detail::are_distinct<OptimizerState<float>, BlockScaledState<float16>>);
    STATIC_REQUIRE_FALSE(zero::detail::are_distinct<GradientReduction<>, GradientReduction<float>>);
}

TEST_CASE("Only complete models of a known category are valid policies") {
    STATIC_REQUIRE(zero::detail::CompletePolicy<Sgd>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<DynamicLossScaler>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<Parameters<float16>>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<NoMasterWeights>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<OptimizerState<bfloat16>>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<GradientReduction<>>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<RoundRobinPartitioner>);
    STATIC_REQUIRE(zero::detail::CompletePolicy<SingleBucketer>);
    STATIC_REQUIRE_FALSE(zero::detail::CompletePolicy<NoPolicy>);
    STATIC_REQUIRE_FALSE(zero::detail::CompletePolicy<UnknownCategory>);
    STATIC_REQUIRE_FALSE(zero::detail::CompletePolicy<Parameters<double>>);
    STATIC_REQUIRE_FALSE(zero::detail::CompletePolicy<MasterWeights<double>>);
    STATIC_REQUIRE_FALSE(zero::detail::CompletePolicy<int>);
}

} // namespace zero::test::policy_list_test
