#include "support/catch.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback_options.hpp>
#include <zero/core/timeline_span.hpp>
#include <zero/cuda/nccl_options.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/tier/file_tier.hpp>
#include <zero/zero.hpp>

// Options with several members take no value by its position.

namespace zero::test::options_by_name_test {

namespace {

template <class Options, class Value>
constexpr bool takes = requires(Value value) { Options{value}; };

template <class Options>
constexpr bool takes_any = takes<Options, int> || takes<Options, double> || takes<Options, bool>
                           || takes<Options, std::size_t> || takes<Options, std::nullptr_t>
                           || takes<Options, std::chrono::seconds>;

template <class... Options>
constexpr bool none_takes_any = (!takes_any<Options> && ...);

struct Unprotected {
    double first = 0.0;
    double second = 0.0;
};

} // namespace

TEST_CASE("Options with several members take no value by its position") {
    STATIC_REQUIRE(takes_any<Unprotected>); // control
    STATIC_REQUIRE(none_takes_any<AdamOptions, AdamWOptions, SgdOptions, AdagradOptions,
                                  LambOptions, LionOptions, MuonOptions>);
    STATIC_REQUIRE(
        none_takes_any<DynamicLossScalerOptions, GradientReductionOptions, GatherOptions,
                       ReportOptions, NormLimit, ZeroStage<2>::Options, ParameterGroup<AdamW>>);
    STATIC_REQUIRE(none_takes_any<LoopbackOptions, HierarchicalOptions, TimelineOptions,
                                  StepCommunicationOptions, cuda::NcclOptions, FileTierOptions>);
}

} // namespace zero::test::options_by_name_test
