// Training with states in files is saved and continues, in files or in memory, with the same bits.

#include "engine_model.hpp"
#include "stage/offload_model.hpp"
#include "support/catch.hpp"
#include "support/stages.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/zero.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::offload_resume_test {

namespace {

using namespace engine_model;

using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using StatesOnly = Offload<To<FileTier, BufferKind::optimizer_state>>;
using MastersOnly = Offload<To<FileTier, BufferKind::master_weights>>;
using Half = Parameters<bfloat16>;

/// In stage 3 parameters lie in files as well where all states do.
template <int N, class O>
using In = std::conditional_t<N == 3 && std::is_same_v<O, Both>, OffloadAll<3>, O>;

template <class Stage>
using ConfigOf = zero::detail::config_of_t<Stage>;

/// Options of an engine. If its states are in a file, their chunks are random.
template <class Stage>
typename Stage::Options random_options(std::mt19937_64& random, TemporaryFolder const& folder,
                                       FileCalls& files) {
    auto options = same_schedule<Stage>();
    if constexpr (requires { options.loss_scaler.growth_interval; }) {
        options.loss_scaler = {.initial_scale = 65536, .growth_interval = 2}; // overflows at first
    }
    if constexpr (ConfigOf<Stage>::Offload::is_any) {
        constexpr double ratios[] = {0, 0.37, 1, 1};
        options.offload = {.path = folder.path(),
                           .chunk_bytes = 3000 + random() % 30'000,
                           .depth = 1 + random() % 4,
                           .ratio = ratios[random() % 4],
                           .calls = &files};
    }
    return options;
}

/// Trains to a number of steps. All ranks have the same gradients, so that the world does not
/// matter.
template <class Stage>
void train_to(Stage& engine, std::uint64_t steps) {
    while (engine.step_count() < steps) {
        (void)run_step(engine, 0, engine.step_count()).report();
    }
}

enum class Save { nothing, now, behind };

/// Trains to a step, from a checkpoint if there is one, and saves. Returns the state.
template <class Stage>
Bits train_on(int world, std::vector<ParameterSpec> const& specs,
              typename Stage::Options const& options, std::filesystem::path const& folder,
              std::uint64_t steps, Save save) {
    return on_ranks<Bits>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(
            communicator,
            registration<typename Stage::ParameterType, typename Stage::GradientType>(specs),
            options);
        if (!folder.empty() && save == Save::nothing) {
            (void)run_step(engine, 1, 9).report(); // is replaced
            load_checkpoint(engine, folder);
        }
        train_to(engine, steps);
        Bits state = state_of(engine);
        if (save == Save::now) {
            save_checkpoint(engine, folder);
        } else if (save == Save::behind) {
            CheckpointSaver saver(engine, folder);
            saver.start();
            train_to(engine, steps + 1);
            saver.wait();
        }
        train_to(engine, steps + 1); // is not saved
        return state;
    })[0];
}

/// Saves from one stage and continues in another, and compares with memory and no interruption.
/// @tparam InMemory the composition of `Second` without Offload
template <class InMemory, class First, class Second>
void check(std::mt19937_64& random, char const* name) {
    constexpr int worlds[] = {1, 2, 4}; // whose means are exact
    constexpr bool is_whole = ConfigOf<First>::Optimizer::whole_tensor;
    auto const specs = random_specs(random, is_whole);
    int const world = worlds[random() % 3];
    // A sum of 16-bit gradients overflows earlier on more ranks.
    constexpr bool is_scaled =
        requires(typename First::Options const& o) { o.loss_scaler.growth_interval; };
    int const next_world = is_scaled ? world : worlds[random() % 3];
    int const reference = is_scaled ? world : 1;
    DelayedFiles files(random());
    TemporaryFolder const folder, tier;
    auto const first = random_options<First>(random, tier, files);
    auto const second = random_options<Second>(random, tier, files);
    auto const in_memory = random_options<InMemory>(random, tier, files);
    Save const save = random() % 2 == 0 ? Save::now : Save::behind;
    INFO(name << ": stage " << First::stage << (ConfigOf<First>::Offload::is_any ? " in files" : "")
              << " on " << world << " ranks, then stage " << Second::stage
              << (ConfigOf<Second>::Offload::is_any ? " in files" : "") << " on " << next_world);
    auto const saved = train_on<First>(world, specs, first, folder.path(), 3, save);
    CHECK((train_on<InMemory>(reference, specs, in_memory, "", 3, Save::nothing) == saved));
    auto const resumed =
        train_on<Second>(next_world, specs, second, folder.path(), 6, Save::nothing);
    CHECK((train_on<InMemory>(reference, specs, in_memory, "", 6, Save::nothing) == resumed));
    CHECK(files.created == files.closed);
}

/// Names the policies of a composition.
template <class... P>
struct Policies {};

} // namespace

TEST_CASE("Training with states in a file is saved, and a new engine continues with the same "
          "bits") {
    using InFile = ZeroStage<2, Half, Both>;
    TemporaryFolder const folder, tier;
    FileTierOptions const in_tier{
        .path = tier.path(), .chunk_bytes = 1500, .depth = 2, .allow_page_cache = true};
    auto const states = on_ranks<std::vector<Bits>>(2, [&](LoopbackCommunicator& communicator) {
        Toy<InFile> toy(communicator, {.offload = in_tier});
        train(*toy.engine, communicator, 0, 3);
        save_checkpoint(*toy.engine, folder.path());
        train(*toy.engine, communicator, 3, 6);
        Toy<InFile> again(communicator, {.offload = in_tier});
        load_checkpoint(*again.engine, folder.path());
        train(*again.engine, communicator, 3, 6);
        return std::vector<Bits>{state_of(*toy.engine), state_of(*again.engine)};
    });
    CHECK((states[0][0] == states[0][1]));
}

TEST_CASE("Random models are saved from files or memory and continue in files or memory, in any "
          "stage and on any number of ranks, with the bits of a run that never stopped") {
    std::mt19937_64 random(352);
    in_every_stage([&]<int N>() {
        auto const ways = [&]<class... P>(Policies<P...>, auto in_file, char const* name) {
            using O = decltype(in_file);
            constexpr int other = (N + 1) % 4;
            using InMemory = ZeroStage<other, P...>;
            check<InMemory, ZeroStage<N, P..., In<N, O>>, InMemory>(random, name);
            check<InMemory, ZeroStage<N, P...>, ZeroStage<other, P..., In<other, O>>>(random, name);
            check<InMemory, ZeroStage<N, P..., In<N, O>>, ZeroStage<other, P..., In<other, O>>>(
                random, name);
        };
        ways(Policies<Half>(), Both(), "copied masters");
        ways(Policies<Half>(), MastersOnly(), "masters only");
        ways(Policies<AdamW>(), StatesOnly(), "float");
        ways(Policies<Half, SplitMasterWeights, BlockScaledState<float16>>(), Both(),
             "split masters, scaled states");
        ways(Policies<Half, SplitMasterWeights, BlockScaledState<power8>>(), Both(),
             "split masters, 8-bit states");
        ways(Policies<Parameters<float16>, Sgd, DynamicLossScaler>(), Both(), "loss scaler");
        ways(Policies<Half, Lamb, BalancedPartitioner>(), Both(), "whole tensors");
    });
}

TEST_CASE("Parameters are exported from states in a file and loaded into them") {
    using InMemory = ZeroStage<3, Half>;
    using InFile = ZeroStage<3, Half, OffloadAll<3>>;
    TemporaryFolder const folder, tier;
    auto const run = [&]<class Stage>(typename Stage::Options const& options, char const* name) {
        return on_ranks<Bits>(2, [&](LoopbackCommunicator& communicator) {
            Toy<Stage> toy(communicator, options);
            train(*toy.engine, communicator, 0, 3);
            save_parameters(*toy.engine, folder / name);
            train(*toy.engine, communicator, 3, 4);
            load_parameters(*toy.engine, folder / "memory");
            train(*toy.engine, communicator, 4, 5);
            return state_of(*toy.engine);
        })[0];
    };
    auto const expected = run.template operator()<InMemory>({}, "memory");
    FileTierOptions const in_tier{
        .path = tier.path(), .chunk_bytes = 1500, .depth = 2, .allow_page_cache = true};
    CHECK((run.template operator()<InFile>({.offload = in_tier}, "file") == expected));
    CHECK(content_of(folder / "file") == content_of(folder / "memory"));
}

TEST_CASE("A checkpoint that needs states which cannot be read or written fails on every rank, and "
          "earlier ones stay") {
    using InFile = ZeroStage<1, Half, Both>;
    enum class Call { save, start, load };
    for (Call const call : {Call::save, Call::start, Call::load}) {
        INFO("call " << static_cast<int>(call));
        TemporaryFolder const folder, tier;
        DelayedFiles healthy(1), failing(2);
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
            bool const fails = communicator.rank() == 1;
            InFile engine(communicator, registration<bfloat16>(toy_specs()),
                          {.offload = {.path = tier.path(),
                                       .chunk_bytes = 1500,
                                       .depth = 1,
                                       .calls = fails ? &failing : &healthy}});
            train_to(engine, 1);
            save_checkpoint(engine, folder.path());
            train_to(engine, 2);
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            if (fails) {
                (call == Call::load ? failing.on_write : failing.on_read) = [](std::size_t) {
                    return std::int64_t{-EIO};
                };
            }
            CheckpointSaver saver(engine, folder.path());
            switch (call) {
            case Call::save: save_checkpoint(engine, folder.path()); break;
            case Call::start: saver.start(); break;
            case Call::load: load_checkpoint(engine, folder.path()); break;
            }
        });
        CHECK(outcomes.ranks[0].type == "Aborted");
        for (char const* text : {"rank 1: ", "optimizer state and master weights of '",
                                 ", elements ", "Input/output error"}) {
            CHECK_THAT(outcomes.ranks[1].message, contains_text(text));
        }
        CHECK(CheckpointDirectory(folder.path()).complete()
              == std::vector<std::string>{"step-00000001"});
        CHECK(failing.created == failing.closed);
    }
}

} // namespace zero::test::offload_resume_test
