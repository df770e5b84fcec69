#include "support/catch.hpp"
#include "support/stages.hpp"
#include "support/trained.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <map>
#include <vector>

// A rebuild of the buckets changes no bit of the training, for all storage of master weights and
// states, and for every partitioner.

namespace zero::test::rebuild_bits_test {

namespace {

constexpr int world = 3;
std::vector<std::size_t> const order{1, 3, 0, 2, 4};

template <class Stage>
Trained rebuilt(typename Stage::Options options = {}) {
    options.rebuild_buckets = Stage::in_ready_order;
    options.leases_until_rebuild = 8;
    return trained<Stage>(world, options, {.order = order});
}

template <class Stage>
Trained kept(typename Stage::Options options = {}) {
    options.extra_leases = 8;
    return trained<Stage>(world, options, {.order = order});
}

/// Compares training with and without a rebuild, in every stage, with every partitioner and storage
/// that allows one.
template <class... Policies>
void check_bits() {
    auto const expected = kept<ZeroStage<0, SizeCappedBucketer, Policies...>>();
    in_every_stage([&]<int N>() {
        using Capped = ZeroStage<N, SizeCappedBucketer, Policies...>;
        CHECK((kept<Capped>() == expected));
        CHECK((rebuilt<Capped>() == expected));
        CHECK((rebuilt<Capped>({.poison = true, .bucketer = {.bucket_bytes = 1024}}) == expected));
        CHECK((rebuilt<typename Capped::template with<RoundRobinPartitioner>>(
                   {.bucketer = {.bucket_bytes = 1024}})
               == expected));
        CHECK((rebuilt<typename Capped::template with<BalancedPartitioner>>() == expected));
        if constexpr (N < 3) {
            CHECK((
                rebuilt<Capped>({.storage = Storage::scattered, .bucketer = {.bucket_bytes = 1024}})
                == expected));
            CHECK((rebuilt<typename Capped::template with<WholeGroupPartitioner>>() == expected));
            CHECK((rebuilt<typename Capped::template with<DealtGroupPartitioner>>(
                       {.storage = Storage::scattered})
                   == expected));
        }
    });
}

/// Returns the number of ranks that own other elements after the first step than before.
template <class Stage>
int ranks_with_other_elements() {
    using Owned = std::map<std::size_t, std::size_t>;
    auto const ranks = on_ranks<int>(world, [](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.rebuild_buckets = Stage::in_ready_order,
                      .leases_until_rebuild = 8,
                      .bucketer = {.bucket_bytes = 1024}});
        auto const owned = [&] {
            Owned elements;
            engine.for_each_owned_slice([&](auto const& slice) {
                elements[slice.parameter * 4096 + slice.begin] = slice.values.size();
            });
            return elements;
        };
        Owned const before = owned();
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0, 1, 0.01, 0,
                       order);
        return before == owned() ? 0 : 1;
    });
    return ranks[0] + ranks[1] + ranks[2];
}

} // namespace

TEST_CASE("Rebuilt buckets change no bit of float parameters", "[stage][rebuild]") {
    check_bits<>();
}

TEST_CASE("Rebuilt buckets change no bit of float master weights", "[stage][rebuild]") {
    check_bits<Parameters<bfloat16>, NoLossScaler>();
}

TEST_CASE("Rebuilt buckets change no bit of float16 master weights", "[stage][rebuild]") {
    check_bits<Parameters<bfloat16>, MasterWeights<float16>>();
}

TEST_CASE("Rebuilt buckets change no bit of split master weights and scaled states",
          "[stage][rebuild]") {
    check_bits<Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>();
}

TEST_CASE("Rebuilt buckets change no bit of stochastic rounding and bfloat16 states",
          "[stage][rebuild]") {
    check_bits<Parameters<bfloat16>, StochasticRounding, OptimizerState<bfloat16>>();
}

TEST_CASE(
    "A rebuild moves elements to other ranks in the stages and partitioners that are compared",
    "[stage][rebuild]") {
    // The comparisons above would also hold for a rebuild that moves nothing.
    CHECK(ranks_with_other_elements<ZeroStage<1, RoundRobinPartitioner, SizeCappedBucketer>>()
          >= 2);
    CHECK(ranks_with_other_elements<ZeroStage<2, WholeGroupPartitioner, SizeCappedBucketer>>()
          >= 2);
    CHECK(ranks_with_other_elements<ZeroStage<2, SizeCappedBucketer>>() >= 2);
    CHECK(ranks_with_other_elements<ZeroStage<3, RoundRobinPartitioner, SizeCappedBucketer>>()
          >= 2);
    CHECK(ranks_with_other_elements<ZeroStage<0, SizeCappedBucketer>>() == 0);
}

} // namespace zero::test::rebuild_bits_test
