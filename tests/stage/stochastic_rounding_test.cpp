#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <vector>

// Stochastic rounding depends on the seed, the step and the number of an element, and on nothing else.

using namespace zero;
using namespace zero::test;

namespace {

constexpr int world = 3;

template <int N, class T = bfloat16, class... More>
using Stage = ZeroStage<N, Parameters<T>, StochasticRounding, NoLossScaler, More...>;

/// All parameters after some steps in which every rank has the same gradients, so that the world size does not change them.
template <int N>
std::vector<std::vector<float>> alike(int ranks, std::uint64_t seed = 0) {
    return on_ranks<std::vector<std::vector<float>>>(ranks, [&](LoopbackCommunicator& communicator) {
        Stage<N> engine(communicator, registration<bfloat16>(toy_specs()), {.master_weights = {.seed = seed}});
        for (std::uint64_t step = 0; step < 3; ++step) {
            (void)run_step(engine, 0, step);
        }
        return full_parameters(engine);
    })[0];
}

} // namespace

TEMPLATE_TEST_CASE("Stochastically rounded parameters are the same bits in every stage, partitioner, bucket size and storage", "", bfloat16, float16) {
    auto const expected = trained<Stage<0, TestType>>(world);
    for (int const stage : {1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() {
            CHECK((trained<Stage<N, TestType>>(world) == expected));
            CHECK((trained<Stage<N, TestType, RoundRobinPartitioner, SizeCappedBucketer>>(world, {.bucketer = {.bucket_bytes = 1024}}) == expected));
            if constexpr (N < 3) {
                CHECK((trained<Stage<N, TestType>>(world, {.storage = Storage::scattered}) == expected));
                CHECK((trained<Stage<N, TestType>>(world, {.storage = Storage::adopted}) == expected));
            }
        });
    }
    CHECK_FALSE((trained<Stage<2, TestType>>(world, {.master_weights = {.seed = 1}}) == expected));
    CHECK_FALSE((trained<ZeroStage<2, Parameters<TestType>, NoMasterWeights, NoLossScaler>>(world) == expected));
}

TEST_CASE("Stochastically rounded parameters do not depend on the number of ranks") {
    auto const expected = alike<0>(1);
    CHECK((alike<2>(2) == expected));
    CHECK((alike<3>(4) == expected));
    CHECK_FALSE((alike<2>(2, 5) == expected));
}

TEST_CASE("A skipped step takes no random numbers: the next one rounds as if it had not been") {
    auto const run = [](bool with_skip) {
        return on_ranks<std::vector<std::uint32_t>>(1, [with_skip](LoopbackCommunicator& communicator) {
            Stage<2> engine(communicator, registration<bfloat16>(toy_specs()));
            (void)run_step(engine, 0, 0);
            if (with_skip) {
                engine.begin_step();
                for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
                    engine.gradients(1)[1][3] = from_float<bfloat16>(std::numeric_limits<float>::infinity());
                    engine.gradients_ready(1);
                }
                (void)engine.step(0.01);
            }
            (void)run_step(engine, 0, 1);
            return snapshot(engine);
        })[0];
    };
    CHECK((run(true) == run(false)));
}

TEST_CASE("Ranks with different seeds are told so") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        Stage<2> const engine(communicator, registration<bfloat16>(toy_specs()), {.master_weights = {.seed = static_cast<std::uint64_t>(communicator.rank())}});
    });
    CHECK(outcomes.rethrown.type == "LayoutMismatch");
    CHECK_THAT(outcomes.rethrown.message, contains_text("master_weights"));
}

TEST_CASE("Stochastic rounding takes no memory beside the parameters") {
    CHECK(trained<Stage<2>>(1).plan[BufferKind::master_weights].bytes() == 0);
}
