// The states of an engine leave memory between two steps and come back, and no bit of a result
// depends on it.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "parked_model.hpp"
#include "tree_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace zero::test::offload_states_test {

namespace {

using namespace parked_model;

/// Trains, parks between steps as `seed` says (0: never), and returns the state after each step.
template <class Stage>
std::vector<Bits> history(int world, std::uint64_t seed, typename Stage::Options options) {
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;
    TemporaryFolder const folder;
    DelayedFiles files(seed, 4);
    options.groups = {{}, {.learning_rate_factor = 0.5}};
    if constexpr (requires { options.offload.path; }) {
        options.offload = {
            .path = folder.path(), .chunk_bytes = 2500, .ratio = 0.4, .calls = &files};
    }
    auto const ranks = on_ranks<std::vector<Bits>>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        HostMemoryResource memory;
        auto own = options;
        own.memory = &memory;
        auto parameters = registration<T, G>(layers());
        std::optional<CallerMemory<T, G>> callers;
        if (options.storage != Storage::owned) {
            callers.emplace(parameters);
            own.adopted_block =
                options.storage == Storage::adopted ? std::span<T>(callers->block) : std::span<T>();
        }
        Stage engine(communicator, parameters, own);
        std::mt19937_64 random(seed + rank); // not collective: each rank does something else
        std::vector<Bits> seen;
        auto const some = [&] {
            Kinds kinds;
            for (BufferKind const kind : all_kinds) {
                bool const is_callers =
                    callers && (kind == BufferKind::parameters || kind == BufferKind::gradients);
                if (random() % 2 == 0 && !is_callers) {
                    kinds.push_back(kind);
                }
            }
            return kinds; // none: all
        };
        auto const park = [&] {
            for (std::uint64_t turn = seed == 0 ? 0 : 1 + random() % 2; turn > 0; --turn) {
                for (std::uint64_t call = 1 + random() % 3; call > 0; --call) {
                    offload_states(engine, some(),
                                   {.path = folder.path(),
                                    .blocking = random() % 2 == 0,
                                    .chunk_bytes = 4096 + random() % 20'000,
                                    .calls = &files});
                }
                if (random() % 2 == 0) {
                    reload_states(engine, {.kinds = some(), .blocking = random() % 2 == 0});
                }
                reload_states(engine, {.blocking = random() % 2 == 0});
            }
        };
        park();
        for (std::uint64_t step = 0; step < 6; ++step) {
            bool const overflows = step == 2;
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(2)) {
                run_micro_step(engine, rank, step, micro_step,
                               overflows ? std::numeric_limits<float>::infinity() : scale, 3);
            }
            auto const ticket = engine.step(0.01);
            park(); // while the step is under way
            if (step % 2 == 1) {
                seen.push_back(state_of(engine));
            }
            seen.push_back({ticket.report().is_skipped == overflows ? 1U : 0U});
        }
        return seen;
    });
    return ranks[0];
}

template <class Stage>
void compare(char const* name, typename Stage::Options const& options = {}) {
    INFO(name);
    for (int const world : {1, 3}) {
        auto const expected = history<Stage>(world, 0, options);
        for (Bits const& bits : expected) { // the third step was skipped, and no other
            CHECK((bits.size() > 1 || bits == Bits{1}));
        }
        for (std::uint64_t const seed : {11U, 12U}) {
            INFO("W = " << world << ", seed " << seed);
            CHECK((history<Stage>(world, seed, options) == expected)); // too long to print
        }
    }
}

} // namespace

TEST_CASE("Rollout and training alternate: in a rollout the engine has no memory, and training "
          "goes on with the same bits") {
    struct Seen {
        std::vector<std::vector<std::vector<float>>> parameters;
        std::size_t before = 0, within = 0, staging = 0, after = 0;
    };
    auto const train = [&](bool parks) {
        TemporaryFolder const folder;
        return on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            HostMemoryResource memory;
            Half engine(communicator,
                        registration<bfloat16>({{"a", 150'000, {0}}, {"b", 250'001, {1}}}),
                        {.memory = &memory});
            Seen seen;
            for (std::uint64_t turn = 0; turn < 3; ++turn) {
                seen.parameters.push_back(full_parameters(engine)); // for the model that generates
                seen.before = resident(memory);
                if (parks) {
                    offload_states(engine, {.path = folder.path(), .allow_page_cache = true});
                    seen.within = resident(memory); // here the model generates
                    seen.staging = memory.resident_bytes(BufferKind::staging);
                    reload_states(engine);
                }
                seen.after = resident(memory);
                (void)run_step(engine, rank, turn);
            }
            seen.parameters.push_back(full_parameters(engine));
            return seen;
        });
    };
    auto const expected = train(false);
    auto const parked = train(true);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        CHECK(parked[rank].parameters == expected[rank].parameters);
        CHECK(parked[rank].before == expected[rank].before);
        CHECK(parked[rank].within < 12 * 2 * page_bytes()); // two edges of each buffer
        CHECK(parked[rank].staging == 0);
        CHECK(parked[rank].after == parked[rank].before);
    }
}

TEST_CASE("Each kind alone gives back its memory and nothing else, keeps its addresses, and is "
          "where it is said to be") {
    in_every_stage([&]<int N>() {
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            TemporaryFolder const folder;
            HostMemoryResource memory;
            ZeroStage<N, Parameters<bfloat16>> engine(
                communicator, registration<bfloat16>({{"a", 40'000, {0}}, {"b", 60'000, {1}}}),
                {.memory = &memory});
            auto const slices = [&] {
                std::vector<void const*> addresses;
                engine.for_each_owned_slice(
                    [&](auto const& slice) { addresses.push_back(slice.values.data()); });
                return addresses;
            };
            auto const addresses = slices();
            for (BufferKind const kind : all_kinds) {
                INFO(name_of(kind));
                std::size_t const others = resident(memory) - memory.resident_bytes(kind);
                std::size_t const own = memory.resident_bytes(kind);
                auto const here = own != 0 ? StatesPlace::memory : StatesPlace::nowhere;
                auto const away = own != 0 ? StatesPlace::file : StatesPlace::nowhere;
                CHECK(where(engine, kind) == here);
                offload_states(engine, {kind}, {.path = folder.path(), .allow_page_cache = true});
                CHECK(where(engine, kind) == away);
                CHECK(memory.resident_bytes(kind) <= 3 * 2 * page_bytes());
                CHECK((own < 12 * page_bytes() || memory.resident_bytes(kind) < own));
                CHECK(memory.allocated_bytes(kind) == own);
                CHECK(resident(memory) - memory.resident_bytes(kind) == others);
                reload_states(engine);
                CHECK(where(engine, kind) == here);
                CHECK(memory.resident_bytes(kind) == own);
            }
            CHECK(slices() == addresses);
        });
        CHECK(outcomes.ranks[0].message.empty());
    });
}

TEST_CASE("Any kinds in any order, twice in a row, before the first step and after a skipped one, "
          "change no bit") {
    using Scaled = Parameters<bfloat16>;
    in_every_stage([&]<int N>() {
        compare<ZeroStage<N, Scaled, DynamicLossScaler>>("copied masters");
        compare<
            ZeroStage<N, Scaled, DynamicLossScaler, SplitMasterWeights, BlockScaledState<float16>>>(
            "split masters, scaled states");
    });
    using InPlace = ZeroStage<1, Scaled, DynamicLossScaler>;
    compare<InPlace>("adopted parameters", {.storage = Storage::adopted});
    compare<InPlace>("scattered parameters", {.storage = Storage::scattered});
    compare<ZeroStage<3, DynamicLossScaler, Lamb, BalancedPartitioner>>("float, whole tensors");
    compare<ZeroStage<1, Scaled, DynamicLossScaler,
                      Offload<To<FileTier, BufferKind::optimizer_state>>>>("states in files");
}

TEST_CASE(
    "Sums that a tree holds leave memory between steps, alone or with all, and change no bit") {
    using Tree = ZeroStage<2, Parameters<bfloat16>, TreeReduction<>>;
    TemporaryFolder const folder;
    tree::Job const job{.micro_batches = 16, .steps = 4, .specs = layers()};
    HostMemoryResource memory;
    Tree::Options options;
    options.memory = &memory;
    options.groups = {{}, {}};
    auto const expected = tree::train<Tree>(1, options, job);
    auto group = LoopbackCommunicator::make_group(1);
    tree::configure(options, job);
    Tree engine(group[0], registration<bfloat16>(job.specs), options);
    std::size_t const bytes = memory.resident_bytes(BufferKind::held_sums);
    CHECK(bytes == engine.memory_plan()[BufferKind::held_sums].bytes());
    CHECK(bytes >= 3 * 21'042 * sizeof(float));
    for (std::uint64_t step = 0; step < job.steps; ++step) {
        auto const seen = tree::seen(engine, tree::run_step(engine, job, step), job);
        CHECK((seen == expected[step]));
        std::vector<BufferKind> kinds;
        if (step % 2 == 0) {
            kinds.push_back(BufferKind::held_sums);
        }
        offload_states(engine, kinds, {.path = folder.path(), .allow_page_cache = true});
        CHECK(memory.resident_bytes(BufferKind::held_sums) < bytes / 2);
        CHECK(where(engine, BufferKind::held_sums) == StatesPlace::file);
        auto const refused = outcome_of([&] { engine.begin_step(); });
        CHECK(refused.type == "OutOfOrder");
        CHECK(refused.message.find("held sums") != std::string::npos);
        reload_states(engine);
        CHECK(memory.resident_bytes(BufferKind::held_sums) == bytes);
    }
}

TEST_CASE("While states are away a call that uses them says what to do, parameters are readable, "
          "and the engine goes on") {
    auto const outcome = with_one_rank([](Alone& alone) {
        auto& engine = alone.engine;
        TrainingState state(engine);
        offload_states(engine, update_kinds, alone.options());
        auto const values = full_parameters(engine);
        {
            auto const weights = engine.acquire(0);
            CHECK(weights[0].size() == 9'000);
        }
        engine.set_learning_rate(0, 1.0);
        auto const refused = [](auto const& call) {
            auto const found = outcome_of(call);
            CHECK(found.type == "OutOfOrder");
            CHECK_THAT(found.message, contains_text(" needs what is out of memory (master weights, "
                                                    "optimizer state; rank 0); call "
                                                    "reload_states(engine) first."));
        };
        refused([&] { engine.begin_step(); });
        refused([&] { engine.for_each_owned_slice([](auto const&) {}); });
        refused([&] { engine.parameters_changed(); });
        refused([&] { (void)state.local_optimizer_state(0, "exp_avg"); });
        refused([&] { (void)state.full_fp32_parameter(0); });
        refused([&] { state.publish_master_weights(); });
        offload_states(engine, {BufferKind::parameters}, alone.options());
        for (auto const& found : {outcome_of([&] { (void)engine.acquire(0); }), outcome_of([&] {
                                      engine.for_each_full_parameter([](auto, auto) {});
                                  })}) {
            CHECK(found.type == "OutOfOrder");
            CHECK_THAT(found.message, contains_text(" needs what is out of memory (parameters"));
        }
        engine.set_learning_rate(0, 1.0);
        reload_states(engine, {.kinds = {BufferKind::parameters}, .blocking = false});
        CHECK(full_parameters(engine) == values); // waits
        refused([&] { engine.begin_step(); });
        reload_states(engine, {.blocking = false}); // the next step waits
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("Offloading is refused in a step, with a handle, for other kinds, memory of the caller, "
          "and memory that cannot be given back") {
    auto const outcome = with_one_rank([](Alone& alone) {
        auto& engine = alone.engine;
        auto const refused = [&](auto const& call, char const* type, char const* text) {
            auto const found = outcome_of(call);
            CHECK(found.type == type);
            CHECK_THAT(found.message, contains_text("rank 0"));
            CHECK_THAT(found.message, contains_text(text));
        };
        auto const all = [&] { offload_states(engine, alone.options()); };
        {
            auto const held = engine.acquire(0);
            refused(all, "OutOfOrder", "release all handles first");
        }
        engine.begin_step();
        refused(all, "OutOfOrder", "inside a step; call step() or cancel_step() first");
        reload_states(engine); // nothing is away, and the step goes on
        refused(all, "OutOfOrder", "inside a step; call step() or cancel_step() first");
        engine.cancel_step();
        engine.for_each_owned_slice([&](auto const&) {
            refused(all, "OutOfOrder", "in a visitor of states or parameters");
        });
        TrainingState(engine).for_each_held_array([&](auto const&, auto const&) {
            refused(all, "OutOfOrder", "in a visitor of states or parameters");
        });
        engine.for_each_full_parameter(
            [&](auto, auto) { refused(all, "OutOfOrder", "release all handles first"); });
        refused([&] { offload_states(engine, {BufferKind::wire}, alone.options()); },
                "InvalidArgument", "wire cannot be offloaded; name parameters, gradients");
        alone.memory.can = false;
        refused(all, "InvalidArgument", "Leave options.memory out (HostMemoryResource can)");
        alone.memory.can = true;
        auto wrong = alone.options();
        wrong.chunk_bytes = 4095;
        refused([&] { offload_states(engine, wrong); }, "InvalidArgument",
                "chunk_bytes of offload_states() is 4095 bytes; it must be at least 4096");
        refused([&] { offload_states(engine, {.path = "no/folder"}); }, "InvalidArgument",
                ": .path is 'no/folder', which is not a folder");
        CHECK(alone.files.created == 0);
    });
    CHECK(outcome.message.empty());

    auto const callers = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        auto parameters = registration<bfloat16>(layers());
        CallerMemory<bfloat16, bfloat16> memory(parameters);
        ZeroStage<1, Parameters<bfloat16>> engine(communicator, parameters,
                                                  {.storage = Storage::scattered});
        TemporaryFolder const folder;
        DelayedFiles files(1);
        offload_states(engine, {.path = folder.path(), .calls = &files}); // leaves them out
        CHECK(where(engine, BufferKind::parameters) == StatesPlace::nowhere);
        CHECK(where(engine, BufferKind::optimizer_state) == StatesPlace::file);
        reload_states(engine);
        offload_states(engine, {BufferKind::parameters}, {.path = folder.path()});
    });
    CHECK(callers.ranks[0].type == "InvalidArgument");
    CHECK_THAT(callers.ranks[0].message, contains_text("parameters of this engine are memory of "
                                                       "the caller"));
}

TEST_CASE("Leases of persistent units leave memory after their last reader on any queue, and come "
          "back with their values") {
    using Sharded = ZeroStage<3, Parameters<bfloat16>>;
    struct Seen { // a rank checks nothing itself, since ranks are threads
        bool is_given_back = false, is_early = false, is_away = false, is_equal = false;
    };
    auto const ranks = on_ranks<Seen>(2, [](LoopbackCommunicator& communicator) {
        TemporaryFolder const folder;
        DelayedFiles files(1);
        RefusingMemory memory;
        Sharded::Options options;
        options.memory = &memory;
        options.gather.persistence_threshold = 10'000;
        Sharded engine(communicator, registration<bfloat16>(layers()), options);
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
        auto const expected = full_parameters(engine);
        host::ThreadedQueue reader;
        Seen seen;
        {
            auto const weights = engine.acquire(0, &reader);
            reader.enqueue([&] {
                for (int turn = 0; turn < 200'000 && !seen.is_early; ++turn) { // as a file takes
                    std::this_thread::yield();
                    seen.is_early = memory.given_back != 0;
                }
            });
        }
        offload_states(engine, {BufferKind::parameter_leases},
                       {.path = folder.path(), .chunk_bytes = 4096, .calls = &files});
        reader.synchronise();
        seen.is_given_back = memory.given_back != 0;
        seen.is_away = where(engine, BufferKind::parameter_leases) == StatesPlace::file;
        reload_states(engine);
        seen.is_equal = full_parameters(engine) == expected;
        return seen;
    });
    for (Seen const& seen : ranks) {
        CHECK(seen.is_given_back);
        CHECK(!seen.is_early);
        CHECK(seen.is_away);
        CHECK(seen.is_equal);
    }
}

TEST_CASE("Two engines with one resource park on their own, and the folder of Offload is the "
          "default") {
    using InFiles =
        ZeroStage<1, Parameters<bfloat16>, Offload<To<FileTier, BufferKind::optimizer_state>>>;
    auto const outcomes = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        TemporaryFolder const folder;
        HostMemoryResource memory;
        InFiles::Options options;
        options.memory = &memory;
        options.offload = {.path = folder.path(), .chunk_bytes = 8192, .allow_page_cache = true};
        InFiles first(communicator, registration<bfloat16>(layers()), options);
        InFiles second(communicator, registration<bfloat16>(layers()), options);
        auto const expected = full_parameters(second);
        std::size_t const both = resident(memory);
        offload_states(first, {});
        CHECK(name_of(where(first, BufferKind::parameters)) == std::string("file"));
        CHECK(where(first, BufferKind::optimizer_state) == StatesPlace::file);
        CHECK(where(second, BufferKind::parameters) == StatesPlace::memory);
        CHECK(resident(memory) < both);
        CHECK(full_parameters(second) == expected);
        offload_states(second, {});
        reload_states(first);
        CHECK(full_parameters(first) == expected);
        reload_states(second);
        CHECK(full_parameters(second) == expected);
        CHECK(resident(memory) == both);
    });
    CHECK(outcomes.ranks[0].message.empty());
}

} // namespace zero::test::offload_states_test
