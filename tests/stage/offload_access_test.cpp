// States in files are read and written by name, as states in memory are.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "offload_model.hpp"
#include "state_model.hpp"

#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace zero::test::offload_access_test {

namespace {

using namespace state_model;

using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using StatesOnly = Offload<To<FileTier, BufferKind::optimizer_state>>;
using MastersOnly = Offload<To<FileTier, BufferKind::master_weights>>;

std::vector<float> values_for(std::uint64_t key, std::size_t parameter, std::size_t elements) {
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        values[i] = std::abs(noise(key, parameter, i)); // a second moment is not negative
    }
    return values;
}

/// Reads and writes every state between steps, in every way, and returns what was read.
/// @param awaited as for `history`
template <class Stage>
std::vector<Bits> use_states(int world, typename Stage::Options const& options,
                             std::vector<ParameterSpec> const& specs,
                             DelayedFiles const* awaited = nullptr) {
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;
    auto const ranks = on_ranks<std::vector<Bits>>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        auto own_options = options;
        std::optional<PatientQueue> queue;
        if (awaited != nullptr) {
            own_options.communication_queue = &queue.emplace(awaited);
        }
        Stage engine(communicator, registration<T, G>(specs), own_options);
        std::vector<Bits> seen;
        std::uint64_t steps = 0;
        auto const step = [&] {
            (void)run_step(engine, rank, steps++);
            seen.push_back(state_of(engine));
        };
        step();
        { // all values of a parameter, by name
            TrainingState state(engine);
            for (std::size_t p = 0; p < specs.size(); ++p) {
                state.set_full_fp32_parameter(p, values_for(1, p, specs[p].elements));
                for (auto const& name : state.state_names()) {
                    if (specs[p].trainable) {
                        state.set_full_optimizer_state(p, name,
                                                       values_for(2, p, specs[p].elements));
                    }
                }
            }
        }
        seen.push_back(state_of(engine));
        step();
        { // the part of this rank
            TrainingState state(engine);
            for (std::size_t p = 0; p < specs.size(); ++p) {
                for (auto& slice : state.local_fp32_parameter(p)) {
                    for (float& value : slice.values) {
                        value *= 0.75F;
                    }
                    if (specs[p].trainable) {
                        state.set_local_fp32_parameter(p, slice.begin, slice.values);
                    }
                }
            }
            state.publish_master_weights();
        }
        step();
        gather(engine, {specs[0].name}, Gather::one_rank_writes).writable(specs[0].name)[0] = 2.0F;
        step();
        engine.for_each_owned_slice([](auto const& slice) {
            for (auto& value : slice.values) {
                value = from_float<T>(0.5F);
            }
        });
        engine.parameters_changed();
        seen.push_back(state_of(engine));
        step();
        return seen;
    });
    return ranks[0];
}

/// @param is_patient whether the queue is slower than the files, and not the files at random
template <class InMemory, class InFile>
void compare(std::mt19937_64& random, bool is_patient, char const* name) {
    constexpr bool is_whole = zero::detail::config_of_t<InMemory>::Optimizer::whole_tensor;
    int const world = 1 + static_cast<int>(random() % 3);
    auto const specs = random_specs(random, is_whole);
    DelayedFiles files(random(), is_patient ? 0 : 40);
    TemporaryFolder const folder;
    constexpr double ratios[] = {0, 0.37, 1, 1};
    typename InFile::Options options;
    options.offload = {.path = folder.path(),
                       .chunk_bytes = (is_whole ? 4100 : 1500) + random() % 30'000,
                       .depth = 1 + random() % 4,
                       .ratio = ratios[random() % 4],
                       .calls = &files};
    INFO(name << (is_patient ? ", slow queue" : ", slow files") << ", W = " << world
              << ", chunks of " << options.offload.chunk_bytes << ", depth "
              << options.offload.depth << ", ratio " << options.offload.ratio);
    auto const expected = use_states<InMemory>(world, {}, specs);
    auto const found = use_states<InFile>(world, options, specs, is_patient ? &files : nullptr);
    CHECK((found == expected)); // too long to print
    CHECK(files.created == files.closed);
}

} // namespace

TEST_CASE("States in files are read and written by name, and the next step starts from what was "
          "written") {
    std::mt19937_64 random(353);
    for (int turn = 0; turn < 4; ++turn) {
        bool const slow = turn % 2 == 1;
        in_every_stage([&]<int N>() {
            using Half = Parameters<bfloat16>;
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, Both>>(random, slow, "copied masters");
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, MastersOnly>>(random, slow,
                                                                         "masters only");
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, OffloadAll<N>>>(random, slow, "all");
            compare<ZeroStage<N>, ZeroStage<N, StatesOnly>>(random, slow, "float");
            compare<
                ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>>,
                ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>, OffloadAll<N>>>(
                random, slow, "split masters, scaled states");
            compare<ZeroStage<N, Half, Lamb, BalancedPartitioner>,
                    ZeroStage<N, Half, Lamb, BalancedPartitioner, OffloadAll<N>>>(random, slow,
                                                                                  "whole tensors");
        });
    }
}

TEST_CASE("States in files are not read by name while they are visited, and the engine goes on") {
    in_every_stage([&]<int N>() {
        using InMemory = ZeroStage<N, Parameters<bfloat16>>;
        using InFile = typename InMemory::template with<OffloadAll<N>>;
        TemporaryFolder const folder;
        DelayedFiles files(1);
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            auto const specs = toy_specs();
            InMemory expected(communicator, registration<bfloat16>(specs), {});
            InFile engine(
                communicator, registration<bfloat16>(specs),
                {.offload = {
                     .path = folder.path(), .chunk_bytes = 1500, .depth = 1, .calls = &files}});
            (void)run_step(expected, 0, 0);
            (void)run_step(engine, 0, 0);
            TrainingState state(engine);
            std::size_t visited = 0;
            engine.for_each_owned_slice([&](auto const& slice) {
                ++visited;
                for (auto const& outcome :
                     {outcome_of(
                          [&] { (void)state.local_optimizer_state(slice.parameter, "exp_avg"); }),
                      outcome_of([&] { engine.for_each_owned_slice([](auto const&) {}); }),
                      outcome_of([&] {
                          if (N == 3) { // where a gather reads the file
                              (void)engine.acquire(0);
                          } else {
                              engine.for_each_owned_slice([](auto const&) {});
                          }
                      })}) {
                    CHECK(outcome.type == "OutOfOrder");
                    CHECK_THAT(outcome.message, contains_text("before or after the visit"));
                }
            });
            CHECK(visited > 3);
            (void)run_step(expected, 0, 1);
            (void)run_step(engine, 0, 1);
            CHECK((full_parameters(engine) == full_parameters(expected)));
        });
        CHECK(outcomes.ranks[0].message.empty());
    });
}

TEST_CASE("A state that cannot be read or written breaks the engine with an error that names it, "
          "and its peers get Aborted") {
    using InFile = ZeroStage<2, Parameters<bfloat16>, Both>;
    for (bool const is_local : {false, true}) {
        for (bool const is_write : {false, true}) {
            INFO((is_local ? "local " : "full ") << (is_write ? "write" : "read"));
            TemporaryFolder const folder;
            DelayedFiles healthy(1), failing(2);
            Outcome again;
            auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                bool const fails = communicator.rank() == 1;
                InFile engine(communicator, registration<bfloat16>(toy_specs()),
                              {.offload = {.path = folder.path(),
                                           .chunk_bytes = 1500,
                                           .depth = 1,
                                           .calls = fails ? &failing : &healthy}});
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0).report();
                engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
                if (fails) {
                    (is_write ? failing.on_write : failing.on_read) = [](std::size_t) {
                        return std::int64_t{-EIO};
                    };
                }
                TrainingState state(engine);
                auto const use_all = [&] {
                    for (std::size_t p = 0; p < toy_specs().size(); ++p) {
                        if (toy_specs()[p].trainable && is_local) {
                            for (auto const& slice : state.local_optimizer_state(p, "exp_avg")) {
                                state.set_local_optimizer_state(p, "exp_avg", slice.begin,
                                                                slice.values);
                            }
                        } else if (toy_specs()[p].trainable) {
                            auto const values = state.full_optimizer_state(p, "exp_avg");
                            state.set_full_optimizer_state(p, "exp_avg", values);
                        }
                    }
                };
                if (is_local && fails) {
                    again = outcome_of(use_all); // not thrown on: the engine releases rank 0
                    return;
                }
                use_all();
                (void)run_step(engine, 0, 1).report();
            });
            CHECK(outcomes.ranks[0].type == "Aborted");
            auto const& message = is_local ? again.message : outcomes.ranks[1].message;
            for (char const* text : {"rank 1: ", "optimizer state and master weights of '",
                                     ", elements ", "Input/output error"}) {
                CHECK_THAT(message, contains_text(text));
            }
            CHECK(failing.created == failing.closed);
        }
    }
}

} // namespace zero::test::offload_access_test
