// An update that runs during the next step has the bits of one that does not, at parameters that
// lack it.

#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/stages.hpp"

#include "delayed_model.hpp"
#include "offload_model.hpp"

#include <zero/zero.hpp>

#include <cstddef>
#include <random>
#include <vector>

namespace zero::test::offload_delayed_test {

namespace {

using StatesOnly =
    Offload<To<FileTier, BufferKind::optimizer_state>, DelayedUpdate>;
using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>,
                     DelayedUpdate>;

template <class InMemory, class Delayed>
void compare(std::mt19937_64& random, char const* name) {
    using Config = zero::detail::config_of_t<InMemory>;
    constexpr bool is_whole = Config::Optimizer::whole_tensor;
    int const world = 1 + static_cast<int>(random() % 3);
    DelayedTraining training;
    training.specs = random_specs(random, is_whole);
    training.micro_steps = 1 + random() % 3;
    training.warm_up = random() % 2 * (random() % 4);
    training.seed = random();
    training.has_infinities = Config::LossScaler::skips_overflow;
    typename InMemory::Options in_memory;
    in_memory.storage =
        InMemory::stage < 3 && random() % 3 == 0 ? Storage::scattered : Storage::owned;
    in_memory.poison = random() % 2 == 0;
    in_memory.gradient_clipping = 0.7F;
    in_memory.unused_parameters =
        random() % 3 == 0 ? UnusedParameters::leave : UnusedParameters::zero;
    if (InMemory::stage == 3) {
        in_memory.gather.prefetch_elements = random() % 3 * 1000;
        in_memory.gather.persistence_threshold = random() % 3 * 40;
    }
    typename Delayed::Options delayed;
    delayed.storage = in_memory.storage;
    delayed.poison = in_memory.poison;
    delayed.gradient_clipping = in_memory.gradient_clipping;
    delayed.unused_parameters = in_memory.unused_parameters;
    delayed.gather = in_memory.gather;
    DelayedFiles files(random());
    TemporaryFolder const folder;
    constexpr double ratios[] = {0, 0.37, 1, 1};
    constexpr std::size_t depths[] = {1, 2, 4};
    delayed.offload.path = folder.path();
    delayed.offload.chunk_bytes =
        is_whole ? 4100 + random() % 2000 : 1500 + random() % 30'000;
    delayed.offload.depth = depths[random() % 3];
    delayed.offload.ratio = ratios[random() % 4];
    delayed.offload.calls = &files;
    delayed.offload.warm_up_steps = training.warm_up;
    INFO(name << ", stage " << InMemory::stage << ", W = " << world << ", warm-up "
              << training.warm_up << ", micro-steps " << training.micro_steps << ", depth "
              << delayed.offload.depth << ", ratio " << delayed.offload.ratio);
    auto const expected = delayed_runs<InMemory, true>(world, in_memory, training);
    compare_delayed(delayed_runs<Delayed, false>(world, delayed, training), expected);
    CHECK(files.created == files.closed);
}

} // namespace

TEST_CASE("A delayed update has the bits of its rule, in every stage") {
    std::mt19937_64 random(6);
    for (int turn = 0; turn < 4; ++turn) {
        in_every_stage([&]<int N>() {
            using Half = Parameters<bfloat16>;
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, Both>>(random, "copied masters");
            compare<ZeroStage<N>, ZeroStage<N, StatesOnly>>(random, "float");
            compare<ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>>,
                    ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>, Both>>(
                random, "split masters, scaled states");
            compare<ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>>,
                    ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>, StatesOnly>>(
                random, "stochastic rounding");
            compare<ZeroStage<N, Parameters<float16>, DynamicLossScaler>,
                    ZeroStage<N, Parameters<float16>, DynamicLossScaler, Both>>(
                random, "float16, skipped steps");
            compare<ZeroStage<N, Half, Lamb, BalancedPartitioner>,
                    ZeroStage<N, Half, Lamb, BalancedPartitioner, Both>>(random, "whole tensors");
        });
    }
}

} // namespace zero::test::offload_delayed_test
