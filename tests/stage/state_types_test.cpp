#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/counter_random.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/ops/stochastic_round.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The distance of 16-bit optimizer states from float ones. optimizer_state_conformance_test.cpp
// compares stages.

namespace zero::test::state_types_test {

namespace {

constexpr int world = 3;
constexpr std::size_t elements = 100;

/// Returns the largest difference of a parameter from a run with float states. Gradients of
/// neighbouring elements differ by up to 2^binades.
template <class Policy>
float distance(std::size_t binades) {
    auto const exact = trained<ZeroStage<2>>(world, {}, {.binades = binades}).parameters;
    auto const found = trained<ZeroStage<2, Policy>>(world, {}, {.binades = binades}).parameters;
    float largest = 0.0F;
    for (std::size_t parameter = 0; parameter < exact.size(); ++parameter) {
        for (std::size_t i = 0; i < exact[parameter].size(); ++i) {
            largest = std::fmax(largest, std::fabs(found[parameter][i] - exact[parameter][i]));
        }
    }
    return largest;
}

} // namespace

TEST_CASE("Scaled float16 states work with split master weights") {
    auto const expected = trained<
        ZeroStage<0, Parameters<bfloat16>, MasterWeights<float>, BlockScaledState<float16>>>(world);
    CHECK(
        (trained<ZeroStage<3, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>>(
             world)
         == expected));
    CHECK(
        (trained<ZeroStage<2, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>>(
             world, {.storage = Storage::scattered})
         == expected));
}

TEST_CASE("Blocks of scaled states start elsewhere in an adopted block, whose parameters start "
          "anywhere") {
    CHECK_FALSE(
        (trained<ZeroStage<2, BlockScaledState<float16>>>(world, {.storage = Storage::adopted})
         == trained<ZeroStage<2, BlockScaledState<float16>>>(world)));
    CHECK((trained<ZeroStage<2, OptimizerState<bfloat16>>>(world, {.storage = Storage::adopted})
           == trained<ZeroStage<2, OptimizerState<bfloat16>>>(world)));
}

namespace {

/// Returns all states after some steps in which all ranks have the same gradients, so that the
/// world size does not change the mean.
template <class Stage>
std::vector<std::vector<float>> states_alike(int ranks) {
    return on_ranks<std::vector<std::vector<float>>>(
        ranks, [&](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<float>(toy_specs()));
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)run_step(engine, 0, step);
            }
            TrainingState state(engine);
            std::vector<std::vector<float>> all;
            for (std::string const& name : state.state_names()) {
                for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
                    if (engine.layout().parameter(p).trainable) {
                        all.push_back(state.full_optimizer_state(p, name));
                    }
                }
            }
            return all;
        })[0];
}

} // namespace

TEST_CASE("Stochastically rounded states do not depend on the number of ranks") {
    auto const expected = states_alike<ZeroStage<0, OptimizerState<bfloat16>>>(1);
    CHECK((states_alike<ZeroStage<2, OptimizerState<bfloat16>>>(2) == expected));
    CHECK((states_alike<ZeroStage<3, OptimizerState<bfloat16>>>(4) == expected));
    CHECK((states_alike<ZeroStage<1, OptimizerState<bfloat16>, RoundRobinPartitioner>>(3)
           == expected));
    CHECK_FALSE(
        (states_alike<ZeroStage<0, OptimizerState<bfloat16, RoundToNearest>>>(1) == expected));
    auto const scaled = states_alike<ZeroStage<0, BlockScaledState<float16>>>(1);
    CHECK((states_alike<ZeroStage<3, BlockScaledState<float16>>>(4) == scaled));
}

TEST_CASE("Without stochastic rounding of the weights, states are rounded with the seed 0") {
    auto const gradient = [](std::size_t i) { return 1.0F + static_cast<float>(i) * 0x1p-13F; };
    auto const found = on_ranks<std::vector<float>>(1, [&](LoopbackCommunicator& communicator) {
        ZeroStage<0, Sgd, OptimizerState<bfloat16>> engine(
            communicator, {{.name = "weights", .elements = elements}});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        auto const gradients = engine.gradients(0);
        for (std::size_t i = 0; i < elements; ++i) {
            gradients[0][i] = gradient(i);
        }
        engine.gradients_ready(0);
        engine.end_micro_step();
        (void)engine.step(0.1);
        TrainingState state(engine);
        return state.full_optimizer_state(0, state.state_names().front());
    })[0];
    std::vector<float> expected; // the momentum after the first step is the gradient
    for (std::size_t i = 0; i < elements; ++i) {
        auto const bits = ops::random_bits(ops::state_random_key(ops::random_key(0, 1), 0), i);
        expected.push_back(to_float(ops::round_stochastically<bfloat16>(gradient(i), bits)));
    }
    CHECK(found == expected);
}

TEST_CASE("Four steps of 0.01 end near those with float optimizer states") {
    CHECK(distance<BlockScaledState<float16>>(0)
          < 4e-5F); // 4 * 0.01 * 2^-10: both moments are off by 2^-11, one of them under a root
    CHECK(distance<OptimizerState<bfloat16>>(0) < 3e-4F);
    CHECK(distance<OptimizerState<bfloat16>>(0) > 4e-5F);
    CHECK(distance<OptimizerState<float>>(0) == 0.0F);
}

TEST_CASE("When neighbouring gradients differ by 2^24, scaled states make small updates too small, "
          "but none too large") {
    float const found = distance<BlockScaledState<float16>>(24);
    CHECK(found < 0.04F); // the most that four steps of 0.01 can move
    CHECK(found > 0.01F);
    CHECK(distance<OptimizerState<bfloat16>>(24) < 4e-4F); // bfloat16 has the range of float
}

} // namespace zero::test::state_types_test
