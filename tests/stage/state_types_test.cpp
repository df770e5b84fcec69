#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <vector>

// States of the optimizer in 16 bits: the same bits in every stage, at the memory that was asked for.

using namespace zero;
using namespace zero::test;

namespace {

constexpr int world = 3;

template <class Policy>
void check_every_stage() {
    auto const expected = trained<ZeroStage<0, Policy>>(world);
    CHECK_FALSE((trained<ZeroStage<0>>(world) == expected));
    for (int const stage : {1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() {
            CHECK((trained<ZeroStage<N, Policy>>(world) == expected));
            CHECK((trained<ZeroStage<N, Policy>>(world, {.poison = true}) == expected));
            CHECK((trained<ZeroStage<N, Policy, RoundRobinPartitioner, SizeCappedBucketer>>(world, {.bucketer = {.bucket_bytes = 1024}}) == expected));
            if constexpr (N < 3) {
                CHECK((trained<ZeroStage<N, Policy>>(world, {.storage = Storage::scattered}) == expected));
            }
        });
    }
}

/// The largest difference of a parameter from the one of a run with float states, with gradients of neighbours that differ by up to 2^binades.
template <class Policy>
float distance(std::size_t binades) {
    auto const exact = trained<ZeroStage<2>>(world, {}, 4, 0.01, binades).parameters;
    auto const found = trained<ZeroStage<2, Policy>>(world, {}, 4, 0.01, binades).parameters;
    float largest = 0.0F;
    for (std::size_t parameter = 0; parameter < exact.size(); ++parameter) {
        for (std::size_t i = 0; i < exact[parameter].size(); ++i) {
            largest = std::fmax(largest, std::fabs(found[parameter][i] - exact[parameter][i]));
        }
    }
    return largest;
}

template <class Policy>
MemoryPlan plan_for_500() {
    return on_ranks<MemoryPlan>(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<1, Policy> const engine(communicator, registration<float>({{"w", 500, {0}, 0, true}}));
        return engine.memory_plan();
    })[0];
}

} // namespace

TEST_CASE("States in bfloat16 are the same bits in every stage, partitioner, bucket size and storage, and others than in float") {
    check_every_stage<OptimizerState<bfloat16>>();
}

TEST_CASE("States in scaled float16 are the same bits in every stage, partitioner, bucket size and storage, and others than in float") {
    check_every_stage<BlockScaledState<float16>>();
}

TEST_CASE("States in scaled float16 go with master weights in parts") {
    auto const expected = trained<ZeroStage<0, Parameters<bfloat16>, MasterWeights<float>, BlockScaledState<float16>>>(world);
    CHECK((trained<ZeroStage<3, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>>(world) == expected));
    CHECK((trained<ZeroStage<2, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>>(world, {.storage = Storage::scattered}) == expected));
}

TEST_CASE("States in scaled float16 are the same bits in every stage for an adopted block, too, where parameters start anywhere") {
    Storage const adopted = Storage::adopted;
    auto const expected = trained<ZeroStage<0, BlockScaledState<float16>>>(world, {.storage = adopted, .bucketer = {.bucket_bytes = 1024}});
    CHECK((trained<ZeroStage<1, BlockScaledState<float16>>>(world, {.storage = adopted, .bucketer = {.bucket_bytes = 1024}}) == expected));
    CHECK((trained<ZeroStage<2, BlockScaledState<float16>>>(world, {.storage = adopted, .bucketer = {.bucket_bytes = 1024}}) == expected));
    CHECK_FALSE((trained<ZeroStage<2, BlockScaledState<float16>>>(world) == expected)); // blocks begin elsewhere
}

TEST_CASE("Four steps of 0.01 end near those with float states") {
    CHECK(distance<BlockScaledState<float16>>(0) < 4e-5F); // 4 * 0.01 * 2^-10: both moments are off by 2^-11, one of them under a root
    CHECK(distance<OptimizerState<bfloat16>>(0) < 3e-4F);
    CHECK(distance<OptimizerState<bfloat16>>(0) > 4e-5F);
    CHECK(distance<OptimizerState<float>>(0) == 0.0F);
}

TEST_CASE("Where gradients of neighbours differ by 2^24, a small one's update with scaled states is too small, but none is too large") {
    float const found = distance<BlockScaledState<float16>>(24);
    CHECK(found < 0.04F); // all that four steps of 0.01 can move
    CHECK(found > 0.01F);
    CHECK(distance<OptimizerState<bfloat16>>(24) < 4e-4F); // bfloat16 has the range
}

TEST_CASE("States take what their type and their scales take") {
    // 500 elements on one rank are 8 blocks, with 12 elements of padding; AdamW has two states.
    CHECK((plan_for_500<OptimizerState<float>>()[BufferKind::optimizer_state] == MemoryRow{4000, 96, false}));
    CHECK((plan_for_500<OptimizerState<bfloat16>>()[BufferKind::optimizer_state] == MemoryRow{2000, 48, false}));
    CHECK((plan_for_500<BlockScaledState<float16>>()[BufferKind::optimizer_state] == MemoryRow{2000 + 64, 48, false}));
}
