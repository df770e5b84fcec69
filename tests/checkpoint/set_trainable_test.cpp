#include "stage/offload_model.hpp"
#include "stage/state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// Parameters that are frozen and thawed between two steps. The reference saves a checkpoint and
// loads it into a new engine, whose registration says what is trainable.

namespace zero::test::set_trainable_test {

namespace {

using namespace state_model;

constexpr std::size_t phases = 5;
constexpr std::uint64_t steps = 2; // of each phase

/// Whether a parameter is trainable in a phase: as registered at first, then by chance. One always
/// is, since a step needs a gradient.
bool is_trainable(std::uint64_t seed, std::size_t phase, std::size_t parameter) {
    if (phase == 0) {
        return toy_specs()[parameter].trainable;
    }
    return parameter == seed % 4 || noise(seed, 7, phase, parameter) < 0.0F;
}

template <class Stage>
auto parameters_of(std::uint64_t seed, std::size_t phase) {
    auto specs = toy_specs();
    for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
        specs[parameter].trainable = is_trainable(seed, phase, parameter);
        specs[parameter].rows = parameter == 1 ? 20 : 0;
    }
    return registration<typename Stage::ParameterType, typename Stage::GradientType>(specs);
}

template <class Stage>
void run_phase(Stage& engine, std::size_t phase) {
    auto const rank = static_cast<std::uint64_t>(engine.communicator().rank());
    for (std::uint64_t step = 0; step < steps; ++step) {
        run_step(engine, rank, phase * steps + step);
    }
}

/// Sets what differs from the phase before, by names: first what is frozen, then what is thawed.
template <class Stage>
void change(Stage& engine, std::uint64_t seed, std::size_t phase) {
    for (bool const thaws : {false, true}) {
        std::vector<std::string> names;
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            if (is_trainable(seed, phase, parameter) == thaws
                && is_trainable(seed, phase - 1, parameter) != thaws) {
                names.push_back(toy_specs()[parameter].name);
            }
        }
        set_trainable(engine, names, thaws);
    }
}

/// All weights, states, step counts and numbers of updates after each phase.
template <class Stage>
void note(Seen& seen, Stage& engine) {
    Bits bits = state_of(engine);
    TrainingState state(engine);
    for (std::size_t parameter = 0; parameter < engine.layout().parameters().size(); ++parameter) {
        auto const& spec = engine.layout().parameter(parameter);
        if (spec.trainable && spec.elements != 0) { // a checkpoint has nothing of an empty one
            bits.push_back(static_cast<std::uint32_t>(state.updates(parameter)));
        }
    }
    for (auto const& values : full_parameters(engine)) {
        Bits const more = bits_of(values);
        bits.insert(bits.end(), more.begin(), more.end());
    }
    seen.push_back(bits);
}

template <class Stage>
Seen live(int world, std::uint64_t seed, typename Stage::Options options = {}) {
    options.poison = true;
    return on_all<Stage>(world, [&](auto& communicator) {
        HostMemoryResource heap;
        auto own = options;
        own.memory = &heap;
        Stage engine(communicator, parameters_of<Stage>(seed, 0), own);
        Seen seen;
        for (std::size_t phase = 0; phase < phases; ++phase) {
            if (phase != 0) {
                change(engine, seed, phase);
            }
            run_phase(engine, phase);
            note(seen, engine);
            MemoryPlan const plan = engine.memory_plan();
            for (BufferKind const kind :
                 {BufferKind::parameters, BufferKind::gradients, BufferKind::gradient_leases,
                  BufferKind::master_weights, BufferKind::optimizer_state, BufferKind::control}) {
                if (heap.allocated_bytes(kind) != plan[kind].bytes()) {
                    seen.push_back(
                        {static_cast<std::uint32_t>(kind)}); // differs from the reference
                }
            }
        }
        return seen;
    });
}

template <class Stage>
Seen through_checkpoints(int world, std::uint64_t seed, typename Stage::Options options = {}) {
    TemporaryFolder const folder;
    Seen seen;
    for (std::size_t phase = 0; phase < phases; ++phase) {
        Seen const all = on_all<Stage>(world, [&](auto& communicator) {
            Stage engine(communicator, parameters_of<Stage>(seed, phase), options);
            if (phase != 0) {
                load_checkpoint(engine, folder / "", {.may_thaw = true});
            }
            run_phase(engine, phase);
            Seen noted;
            note(noted, engine);
            save_checkpoint(engine, folder / "");
            return noted;
        });
        seen.push_back(all.at(0));
    }
    return seen;
}

template <class Stage>
void check(int world, std::uint64_t seed, typename Stage::Options const& options = {}) {
    CHECK((live<Stage>(world, seed, options) == through_checkpoints<Stage>(world, seed, options)));
}

} // namespace

TEST_CASE("Parameters that are frozen and thawed between steps train as after a checkpoint",
          "[stage][rebuild]") {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        INFO("seed " << seed);
        int const world = static_cast<int>(seed) + 1;
        Seen const expected = live<ZeroStage<0>>(world, seed);
        in_every_stage([&]<int N>() {
            CHECK((live<ZeroStage<N>>(world, seed) == expected));
            CHECK((live<ZeroStage<N, RoundRobinPartitioner, SizeCappedBucketer>>(
                       world, seed, {.bucketer = {.bucket_bytes = 700}})
                   == expected));
            check<ZeroStage<N>>(world, seed);
        });
    }
}

TEST_CASE("Every form of masters and states moves when parameters are frozen and thawed",
          "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        check<ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer>>(
            3, 5, {.bucketer = {.bucket_bytes = 700}});
        check<ZeroStage<N, Parameters<bfloat16>, SplitMasterWeights>>(2, 6);
        check<ZeroStage<N, BlockScaledState<float16>>>(2, 7);
        check<ZeroStage<N, Lamb, RoundRobinPartitioner>>(2, 8);
        check<ZeroStage<N>>(2, 9, {.unused_parameters = UnusedParameters::leave});
    });
}

TEST_CASE("A run of sharded groups freezes and thaws", "[stage][rebuild]") {
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    check<ZeroStage<3, Hosts>>(4, 10);
}

TEST_CASE("States in files move when parameters are frozen and thawed", "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        using InMemory = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer>;
        using InFile = typename InMemory::template with<OffloadAll<N>>;
        TemporaryFolder const folder;
        DelayedFiles files(N);
        typename InFile::Options options{.bucketer = {.bucket_bytes = 700},
                                         .offload = {.path = folder.path(),
                                                     .chunk_bytes = 1500,
                                                     .depth = 2,
                                                     .ratio = 0.5,
                                                     .calls = &files}};
        auto found = live<InFile>(3, 11, options);
        std::erase_if(found, [](Bits const& bits) { return bits.size() == 1; }); // plan: elsewhere
        CHECK((found == live<InMemory>(3, 11, {.bucketer = {.bucket_bytes = 700}})));
    });
}

TEST_CASE("A replica of a model that is cut over ranks is frozen on all of them or on none",
          "[stage][rebuild]") {
    using Parts = Groups<LoopbackCommunicator, ModelParallel>;
    auto const run = [](bool on_both) {
        std::vector<Outcome> seen(4);
        (void)outcome_of([&] {
            run_ranks<Parts>(4, test_time_out, {.model = 2}, [&](Parts& ranks) {
                auto& own = seen[static_cast<std::size_t>(2 * ranks.rank() + ranks.model().rank())];
                std::vector<Parameter<float>> parameters(2);
                parameters[0].name = ranks.model().rank() == 0 ? "first" : "second";
                parameters[1].name = "shared";
                parameters[1].counts_on = CountsOn::first_model_rank;
                parameters[0].elements = parameters[1].elements = 100;
                ZeroStage<2, Parts> engine(ranks, parameters);
                bool const changes = on_both || ranks.model().rank() == 1;
                std::vector<std::string> names;
                if (changes) {
                    names.emplace_back("shared");
                }
                own = outcome_of([&] { set_trainable(engine, names, false); });
                if (!own.message.empty()) {
                    throw std::runtime_error(own.message);
                }
            });
        });
        return seen;
    };
    for (Outcome const& outcome : run(true)) {
        CHECK(outcome.message.empty());
    }
    for (Outcome const& outcome : run(false)) {
        CHECK_THAT(outcome.message, contains_text("one is frozen"));
    }
}

TEST_CASE("All parameters of a group are frozen at once", "[stage][rebuild]") {
    auto const counts = on_ranks<std::vector<std::size_t>>(2, [](auto& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        std::vector<std::size_t> trainable;
        auto const count = [&] {
            trainable.push_back(0);
            for (auto const& parameter : engine.layout().parameters()) {
                trainable.back() += parameter.trainable ? 1 : 0;
            }
        };
        count();
        set_trainable(engine, 1, false);
        count();
        set_trainable(engine, 0, true);
        count();
        set_trainable(engine, {"first.bias"}, true);
        count();
        return trainable;
    });
    CHECK(counts[0] == std::vector<std::size_t>{7, 5, 6, 7});
}

TEST_CASE("What cannot be frozen is refused by name, and the engine goes on", "[stage][rebuild]") {
    auto const outcomes = on_ranks<std::vector<Outcome>>(2, [](auto& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        std::vector<Outcome> seen;
        auto const refuse = [&](std::vector<std::string> const& names, bool is_trainable) {
            seen.push_back(outcome_of([&] { set_trainable(engine, names, is_trainable); }));
        };
        refuse({"first"}, false);
        refuse({""}, false);
        refuse({rank == 0 ? "first.bias" : "first.weight"}, false);
        seen.push_back(outcome_of([&] { set_trainable(engine, 2, false); }));
        engine.begin_step();
        refuse({"first.bias"}, false);
        engine.cancel_step();
        {
            auto const held = engine.acquire(0);
            refuse({"first.bias"}, false);
        }
        auto const before = engine.layout().hash();
        refuse({"first.bias"}, true); // it is
        refuse({}, true);
        seen.push_back(outcome_of([&] { run_step(engine, rank, 0); }));
        if (engine.layout().hash() != before) {
            seen.push_back({"changed", ""});
        }
        return seen;
    })[1];
    REQUIRE(outcomes.size() == 9);
    CHECK(outcomes[0].type == "InvalidArgument");
    CHECK(outcomes[0].message
          == "zero: set_trainable() on rank 1: no parameter has the name 'first'; "
             "engine.layout().parameters() lists all names.");
    CHECK(outcomes[1].type == "InvalidArgument");
    CHECK(outcomes[2].type == "LayoutMismatch");
    CHECK(outcomes[3].message == "zero: set_trainable() on rank 1: no parameter is in group 2.");
    CHECK(outcomes[4].type == "OutOfOrder");
    CHECK(outcomes[5].type == "OutOfOrder");
    CHECK(outcomes[6].message.empty());
    CHECK(outcomes[7].message.empty());
    CHECK(outcomes[8].message.empty());
}

TEST_CASE("Memory that the caller registered limits what can be frozen", "[stage][rebuild]") {
    auto const outcomes = on_ranks<std::vector<Outcome>>(1, [](auto& communicator) {
        std::vector<float> block(128);
        std::vector<float> gradient(64);
        std::vector<Outcome> seen;
        auto const refuse = [&](Storage storage) {
            std::vector<Parameter<float>> parameters{{.name = "a", .elements = 64},
                                                     {.name = "b", .elements = 64}};
            typename ZeroStage<1>::Options options{.storage = storage};
            if (storage == Storage::adopted) {
                parameters[0].data = block.data();
                parameters[1].data = block.data() + 64;
                options.adopted_block = block;
            } else {
                parameters[0].gradient = gradient.data();
            }
            ZeroStage<1> engine(communicator, parameters, options);
            seen.push_back(outcome_of([&] { set_trainable(engine, {"a"}, false); }));
            seen.push_back(outcome_of([&] { set_trainable(engine, {"b"}, false); }));
        };
        refuse(Storage::owned);
        refuse(Storage::adopted);
        return seen;
    })[0];
    CHECK_THAT(outcomes[0].message, contains_text("parameter 'a' was registered with memory for"));
    CHECK(outcomes[1].message.empty());
    CHECK_THAT(outcomes[2].message, contains_text("an adopted block is cut"));
    CHECK_THAT(outcomes[3].message, contains_text("an adopted block is cut"));
}

} // namespace zero::test::set_trainable_test
