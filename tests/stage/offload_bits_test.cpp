// Random models with states in files train to the bits of states in memory, after every step.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "mixed_model.hpp"
#include "offload_model.hpp"

#include <zero/zero.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace zero::test::offload_bits_test {

namespace {

using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using StatesOnly = Offload<To<FileTier, BufferKind::optimizer_state>>;
using MastersOnly = Offload<To<FileTier, BufferKind::master_weights>>;
using All = OffloadAll<3>;
using WeightsAndStates = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::parameters>>;
using WeightsOnly = Offload<To<FileTier, BufferKind::parameters>>;

/// An optimizer of whole parameters that leaves long ones as they are.
struct ShortOnly : Lamb {
    template <class Tensor>
    static void update_tensor(Tensor const& tensor, Hyper const& hyper) noexcept {
        if (tensor.elements() < 60) {
            Lamb::update_tensor(tensor, hyper);
        }
    }
};

/// @param is_patient whether the queue is slower than the files, and not the files at random
template <class InMemory, class InFile>
void compare(std::mt19937_64& random, bool is_patient, char const* name) {
    constexpr bool is_whole = zero::detail::config_of_t<InMemory>::Optimizer::whole_tensor;
    int const world = 1 + static_cast<int>(random() % 3);
    Training training;
    training.specs = random_specs(random, is_whole);
    typename InMemory::Options in_memory;
    typename InFile::Options in_file;
    in_memory.storage =
        InMemory::stage < 3 && random() % 3 == 0 ? Storage::scattered : Storage::owned;
    in_memory.poison = random() % 2 == 0;
    in_memory.unused_parameters =
        random() % 3 == 0 ? UnusedParameters::leave : UnusedParameters::zero;
    if (InMemory::stage == 3) {
        in_memory.gather.prefetch_elements = random() % 3 * 1000;
        in_memory.gather.persistence_threshold = random() % 3 * 40;
    }
    in_file.gather = in_memory.gather;
    in_file.storage = in_memory.storage;
    in_file.poison = in_memory.poison;
    in_file.unused_parameters = in_memory.unused_parameters;
    DelayedFiles files(random(), is_patient ? 0 : 40);
    TemporaryFolder const folder;
    constexpr double ratios[] = {0, 0.37, 1, 1};
    constexpr std::size_t depths[] = {1, 2, 4};
    in_file.offload = {.path = folder.path(),
                       .chunk_bytes = is_whole ? 4100 + random() % 2000 : 1500 + random() % 30'000,
                       .depth = depths[random() % 3],
                       .ratio = ratios[random() % 4],
                       .calls = &files};
    if (zero::detail::config_of_t<InFile>::Offload::offloads(BufferKind::parameters)) {
        in_file.offload.resident_bytes = random() % 3 * 700;
    }
    INFO(name << (is_patient ? ", slow queue" : ", slow files") << ", W = " << world
              << ", chunks of " << in_file.offload.chunk_bytes << ", depth "
              << in_file.offload.depth << ", ratio " << in_file.offload.ratio << ", resident bytes "
              << in_file.offload.resident_bytes);
    auto const expected = history<InMemory>(world, in_memory, training);
    auto const found = history<InFile>(world, in_file, training, is_patient ? &files : nullptr);
    for (std::size_t step = 0; step < training.steps; ++step) {
        INFO("step " << step);
        CHECK((found[step] == expected[step]));
    }
    CHECK(files.created == files.closed);
}

} // namespace

TEST_CASE("Random models with states in files train to the bits of states in memory, in every "
          "stage") {
    std::mt19937_64 random(35);
    for (int turn = 0; turn < 6; ++turn) {
        bool const slow = turn % 2 == 1;
        in_every_stage([&]<int N>() {
            using Half = Parameters<bfloat16>;
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, Both>>(random, slow, "copied masters");
            compare<ZeroStage<N, Half, BalancedPartitioner>,
                    ZeroStage<N, Half, BalancedPartitioner, Both>>(random, slow, "balanced");
            compare<ZeroStage<N, Half, RoundRobinPartitioner>,
                    ZeroStage<N, Half, RoundRobinPartitioner, MastersOnly>>(random, slow,
                                                                            "masters only");
            compare<ZeroStage<N>, ZeroStage<N, StatesOnly>>(random, slow, "float");
            compare<ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>>,
                    ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>, Both>>(
                random, slow, "split masters, scaled states");
            compare<ZeroStage<N, Half, BlockScaledState<power8>>,
                    ZeroStage<N, Half, BlockScaledState<power8>, Both>>(random, slow,
                                                                        "8-bit states");
            compare<ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>>,
                    ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>, StatesOnly>>(
                random, slow, "stochastic rounding");
            compare<ZeroStage<N, Parameters<float16>, Sgd>,
                    ZeroStage<N, Parameters<float16>, Sgd, Both>>(random, slow, "float16, Sgd");
            compare<ZeroStage<N, Half, Lamb, BalancedPartitioner>,
                    ZeroStage<N, Half, Lamb, BalancedPartitioner, Both>>(random, slow,
                                                                         "whole tensors");
        });
    }
}

TEST_CASE("Random models with their parameters in files as well train to the bits of memory") {
    std::mt19937_64 random(36);
    for (int turn = 0; turn < 12; ++turn) {
        bool const slow = turn % 2 == 1;
        using Half = Parameters<bfloat16>;
        compare<ZeroStage<3, Half>, ZeroStage<3, Half, All>>(random, slow, "copied masters");
        compare<ZeroStage<3, Half, BalancedPartitioner>,
                ZeroStage<3, Half, BalancedPartitioner, All>>(random, slow, "balanced");
        compare<ZeroStage<3, Half>, ZeroStage<3, Half, WeightsOnly>>(random, slow, "weights only");
        compare<ZeroStage<3, Half>, ZeroStage<3, Half, WeightsAndStates>>(random, slow,
                                                                          "masters in memory");
        compare<ZeroStage<3>, ZeroStage<3, WeightsAndStates>>(random, slow, "float");
        compare<ZeroStage<3, Half, SplitMasterWeights, BlockScaledState<float16>>,
                ZeroStage<3, Half, SplitMasterWeights, BlockScaledState<float16>, All>>(
            random, slow, "split masters, scaled states");
        compare<ZeroStage<3, Half, SplitMasterWeights>,
                ZeroStage<3, Half, SplitMasterWeights, WeightsOnly>>(random, slow,
                                                                     "split masters in memory");
        compare<ZeroStage<3, Half, StochasticRounding, OptimizerState<bfloat16>>,
                ZeroStage<3, Half, StochasticRounding, OptimizerState<bfloat16>, WeightsAndStates>>(
            random, slow, "stochastic rounding");
        compare<ZeroStage<3, Half, Lamb, BalancedPartitioner>,
                ZeroStage<3, Half, Lamb, BalancedPartitioner, All>>(random, slow, "whole tensors");
    }
}

TEST_CASE("Master weights start from parameters that share one staging slot") {
    using Stage = ZeroStage<3, Parameters<bfloat16>, WeightsOnly>;
    TemporaryFolder const folder;
    DelayedFiles files(0, 0);
    PatientQueue queue(&files); // each conversion begins when no read is left to begin
    constexpr std::size_t chunk = 1024;
    std::vector<bfloat16> initial(3 * chunk);
    for (std::size_t i = 0; i < initial.size(); ++i) {
        initial[i] = from_float<bfloat16>(static_cast<float>(i / chunk * 8 + i % 7));
    }
    std::vector<Parameter<bfloat16>> const parameters{
        {.name = "w", .initial = initial.data(), .elements = initial.size()}};
    std::size_t wrong = 0;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, parameters,
                     {.offload = {.path = folder.path(),
                                  .chunk_bytes = chunk * sizeof(bfloat16),
                                  .depth = 1,
                                  .calls = &files},
                      .communication_queue = &queue});
        engine.for_each_owned_slice([&](auto const& slice) {
            for (std::size_t i = 0; i < slice.values.size(); ++i) {
                wrong += slice.master_weight(i) == to_float(initial[slice.begin + i]) ? 0 : 1;
            }
        });
    });
    CHECK(wrong == 0);
}

TEST_CASE("An optimizer that leaves a parameter as it is leaves it so in a file") {
    using InMemory = ZeroStage<3, Parameters<bfloat16>, ShortOnly, BalancedPartitioner>;
    Training training;
    training.specs.clear();
    for (std::size_t unit = 0; unit < 4;
         ++unit) { // equal, so that they use the same staging memory
        training.specs.push_back({"p" + std::to_string(unit), unit == 0 ? 40U : 100U, {unit}});
    }
    DelayedFiles files(1, 0);
    TemporaryFolder const folder;
    CHECK(
        (history<InMemory::with<All>>(
             1,
             {.offload = {.path = folder.path(), .chunk_bytes = 4100, .depth = 1, .calls = &files}},
             training)
         == history<InMemory>(1, {}, training)));
}

TEST_CASE("A model of two types with states in files trains to the bits of states in memory") {
    for (std::size_t const depth : {std::size_t{1}, std::size_t{3}}) {
        in_every_stage([&]<int N>() {
            DelayedFiles files(depth);
            TemporaryFolder const folder;
            auto const expected = mixed::train_all<mixed::Mixed<N>>({});
            CHECK(mixed::are_equal(
                mixed::train_all<mixed::Mixed<N, Both>>({.offload = {.path = folder.path(),
                                                                     .chunk_bytes = 1500,
                                                                     .depth = depth,
                                                                     .calls = &files}}),
                expected));
            CHECK(mixed::are_equal(
                mixed::train_all<mixed::Mixed<N, OffloadAll<N>>>({.offload = {.path = folder.path(),
                                                                              .chunk_bytes = 1800,
                                                                              .depth = depth,
                                                                              .calls = &files}}),
                expected));
            CHECK(mixed::are_equal(
                mixed::train_all<mixed::Mixed<N, MastersOnly>>({.offload = {.path = folder.path(),
                                                                            .chunk_bytes = 1500,
                                                                            .depth = depth,
                                                                            .calls = &files}}),
                expected));
        });
    }
}

} // namespace zero::test::offload_bits_test
