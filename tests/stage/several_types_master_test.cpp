#include "stage/mixed_model.hpp"

#include "support/catch.hpp"
#include "support/stages.hpp"

#include <vector>

#include <zero/layout/round_robin_partitioner.hpp>

// Master weights in models with bfloat16 parameters and float ones. A float parameter is its own
// master weight.

namespace zero::test::mixed::several_types_master_test {

namespace {

template <int N, class... Policies>
using Capped = Mixed<N, SizeCappedBucketer, Policies...>;

template <class Stage>
typename Stage::Options boundary(typename Stage::Options options = {}) {
    options.reduction.schedule = ReductionSchedule::boundary; // the default differs between stages
    return options;
}

/// Checks that every stage is bit-identical to stage 0: with poison and small buckets, and with
/// `RoundRobinPartitioner`.
template <class... Policies>
void check_stages() {
    auto const expected = train_all<Capped<0, Policies...>>(boundary<Capped<0, Policies...>>());
    in_every_stage([&]<int N>() {
        using Stage = Capped<N, Policies...>;
        auto const check = [&](std::vector<TrainedByName> const& found) {
            CHECK((found == expected)); // on every rank
            CHECK((owned_by_all(found) == owned_by_all(expected)));
        };
        check(
            train_all<Stage>(boundary<Stage>({.poison = true, .bucketer = {.bucket_bytes = 600}})));
        using Dealt = typename Stage::template with<RoundRobinPartitioner>;
        check(train_all<Dealt>(boundary<Dealt>()));
    });
    using Stage = Capped<2, Policies...>;
    CHECK_FALSE((train_all<Stage>(boundary<Stage>({.optimizer = {.beta1 = 0.91}})) == expected));
}

} // namespace

TEST_CASE("Split master weights of the bfloat16 parameters of a mixed model have the bits of float "
          "ones, in every stage",
          "[stage][master]") {
    check_stages<SplitMasterWeights>();
    auto const split =
        train_all<Capped<2, SplitMasterWeights>>(boundary<Capped<2, SplitMasterWeights>>());
    auto const floats = train_all<Capped<2>>(boundary<Capped<2>>());
    auto const none = train_all<Capped<2, NoMasterWeights>>(boundary<Capped<2, NoMasterWeights>>());
    CHECK((split == floats));
    CHECK((owned_by_all(split) == owned_by_all(floats)));
    CHECK_FALSE((none == floats));
}

TEST_CASE("Stochastic rounding of the bfloat16 parameters of a mixed model gives the same bits in "
          "every stage, and does not touch float ones",
          "[stage][master]") {
    check_stages<StochasticRounding>();
    using Stage = Capped<2, StochasticRounding>;
    auto const first = train_all<Stage>(boundary<Stage>())[0];
    auto const other = train_all<Stage>(boundary<Stage>({.master_weights = {.seed = 5}}))[0];
    auto const exact = train_all<Capped<2>>(boundary<Capped<2>>())[0];
    auto const specs = toy_specs();
    for (std::size_t index = 0; index < specs.size(); ++index) {
        INFO(specs[index].name);
        bool const is_rounded =
            !is_float(index) && specs[index].trainable && specs[index].elements != 0;
        if (specs[index].elements != 1) { // one element may be rounded the same way by chance
            CHECK((first.values.at(specs[index].name) == other.values.at(specs[index].name))
                  != is_rounded);
        }
        if (is_float(index)) {
            CHECK((first.values.at(specs[index].name) == exact.values.at(specs[index].name)));
        }
    }
}

TEST_CASE(
    "Float16 master weights and scaled states with several types give the same bits in every stage",
    "[stage][master]") {
    check_stages<MasterWeights<float16>, BlockScaledState<float16>>();
}

} // namespace zero::test::mixed::several_types_master_test
