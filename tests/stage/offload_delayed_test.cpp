// An update that runs during the next step has the bits of one that does not, at parameters that
// lack it.

#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/stages.hpp"

#include "delayed_model.hpp"
#include "mixed_model.hpp"
#include "offload_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace zero::test::offload_delayed_test {

namespace {

using StatesOnly = Offload<To<FileTier, BufferKind::optimizer_state>, DelayedUpdate>;
using Both =
    Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>, DelayedUpdate>;

/// @param is_patient whether queues are slower than the files, and not the files at random
template <class InMemory, class InFile>
void compare(std::mt19937_64& random, bool is_patient, char const* name) {
    using Delayed = typename InFile::template with<Loopback<PatientBackend>>;
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
    DelayedFiles files(random(), is_patient ? 0 : 40);
    TemporaryFolder const folder;
    constexpr double ratios[] = {0, 0.37, 1, 1};
    constexpr std::size_t depths[] = {1, 2, 4};
    delayed.offload.path = folder.path();
    delayed.offload.chunk_bytes = is_whole ? 4100 + random() % 2000 : 1500 + random() % 30'000;
    delayed.offload.depth = depths[random() % 3];
    delayed.offload.ratio = ratios[random() % 4];
    delayed.offload.calls = &files;
    delayed.offload.warm_up_steps = training.warm_up;

    if constexpr (InMemory::stage < 3 && requires { delayed.bucketer.bucket_bytes; }) {
        in_memory.bucketer.bucket_bytes = 1024;
        delayed.bucketer.bucket_bytes = 1024;
        training.rebuilds = random() % 2 == 0;
        if (training.rebuilds) {
            in_memory.extra_leases = 8;
            delayed.rebuild_buckets = Delayed::in_ready_order;
            delayed.leases_until_rebuild = 8;
        }
    }
    INFO(name << (is_patient ? ", slow queues" : ", slow files") << ", stage " << InMemory::stage
              << ", W = " << world << ", warm-up " << training.warm_up << ", micro-steps "
              << training.micro_steps << ", depth " << delayed.offload.depth << ", ratio "
              << delayed.offload.ratio);
    auto const expected = delayed_runs<InMemory, true>(world, in_memory, training);
    PatientQueue::files_of_engines = is_patient ? &files : nullptr;
    auto const found = delayed_runs<Delayed, false>(world, delayed, training);
    PatientQueue::files_of_engines = nullptr;
    compare_delayed(found, expected);
    CHECK(files.created == files.closed);
}

template <int N>
using Late = ZeroStage<N, Parameters<bfloat16>, Both>;
template <int N>
using Prompt =
    ZeroStage<N, Parameters<bfloat16>,
              Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;
template <int N>
using InMemory = ZeroStage<N, Parameters<bfloat16>>;

template <class Stage>
typename Stage::Options in_folder(TemporaryFolder const& folder, FileCalls* calls = nullptr) {
    typename Stage::Options options;
    if constexpr (requires { options.offload.path; }) {
        options.offload.path = folder.path();
        options.offload.chunk_bytes = 1500;
        options.offload.depth = 2;
        options.offload.allow_page_cache = true;
        options.offload.calls = calls;
    }
    return options;
}

/// Returns what two ranks hold after some steps.
template <class Stage>
std::vector<Trained> trained_parts(std::uint64_t steps) {
    return on_ranks<Trained>(2, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()), {});
        for (std::uint64_t step = 0; step < steps; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
        }
        Trained result;
        result.resize(toy_specs());
        engine.for_each_owned_slice([&](auto const& slice) { result.add(slice); });
        return result;
    });
}

/// Returns the message of the error that a call throws, with its type.
template <class Call>
std::string refusal(Call const& call) {
    try {
        call();
    } catch (OutOfOrder const& error) {
        return std::string("OutOfOrder: ") + error.what();
    }
    return "nothing was thrown";
}

} // namespace

TEST_CASE("A delayed update has the bits of its rule, in every stage") {
    std::mt19937_64 random(6);
    for (int turn = 0; turn < 4; ++turn) {
        bool const slow = turn % 2 == 1;
        in_every_stage([&]<int N>() {
            using Half = Parameters<bfloat16>;
            compare<ZeroStage<N, Half>, ZeroStage<N, Half, Both>>(random, slow, "copied masters");
            compare<ZeroStage<N>, ZeroStage<N, StatesOnly>>(random, slow, "float");
            compare<ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>>,
                    ZeroStage<N, Half, SplitMasterWeights, BlockScaledState<float16>, Both>>(
                random, slow, "split masters, scaled states");
            compare<ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>>,
                    ZeroStage<N, Half, StochasticRounding, OptimizerState<bfloat16>, StatesOnly>>(
                random, slow, "stochastic rounding");
            compare<ZeroStage<N, Parameters<float16>, DynamicLossScaler>,
                    ZeroStage<N, Parameters<float16>, DynamicLossScaler, Both>>(
                random, slow, "float16, skipped steps");
            compare<ZeroStage<N, Half, Lamb, BalancedPartitioner>,
                    ZeroStage<N, Half, Lamb, BalancedPartitioner, Both>>(random, slow,
                                                                         "whole tensors");
        });
    }
}

TEST_CASE("The rule of a delayed update is none that another run has") { // the control
    TemporaryFolder const folder;
    DelayedTraining const training{.settles = false};
    auto const found = delayed_runs<Late<2>, false>(2, in_folder<Late<2>>(folder), training);
    auto const late = delayed_runs<InMemory<2>, true>(2, {}, training);
    compare_delayed(found, late);
    auto never = training;
    never.warm_up = training.steps;
    auto const prompt = delayed_runs<InMemory<2>, true>(2, {}, never);
    CHECK(found[0].seen[1] != prompt[0].seen[1]);
    CHECK_FALSE((found[0].final == prompt[0].final));
    CHECK(found[0].pending == std::vector<bool>(training.steps, true));
}

TEST_CASE("Models of two types, replicas and rebuilt buckets end with the bits of states in "
          "memory, if gradients do not depend on parameters") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        using Mixed = mixed::Mixed<N, Both>;
        DelayedFiles files(N);
        CHECK(mixed::are_equal(mixed::train_all<Mixed>(in_folder<Mixed>(folder, &files)),
                               mixed::train_all<mixed::Mixed<N>>({})));
        using Capped = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer>;
        using LateCapped = typename Capped::template with<Both>;
        Training const training{.order = {1, 3, 0, 2, 4}};
        auto rebuilt = in_folder<LateCapped>(folder, &files);
        rebuilt.rebuild_buckets = LateCapped::in_ready_order;
        rebuilt.leases_until_rebuild = 8;
        rebuilt.bucketer.bucket_bytes = 1024;
        CHECK((trained<LateCapped>(3, rebuilt, training)
               == trained<Capped>(3, {.extra_leases = 8}, training)));
    });
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    auto const in_groups = []<class Stage>(typename Stage::Options const& options) {
        std::vector<std::vector<std::vector<float>>> values(4);
        run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
            auto const rank = static_cast<std::size_t>(hosts.rank());
            Stage engine(hosts, registration<bfloat16>(toy_specs()), options);
            for (std::uint64_t step = 0; step < 4; ++step) {
                (void)run_step(engine, rank, step, 2, 0.01, 8);
            }
            values[rank] = full_parameters(engine);
        });
        return values;
    };
    using InGroups = ZeroStage<3, Parameters<bfloat16>, Hosts>;
    using LateInGroups = InGroups::with<Both>;
    TemporaryFolder const folder;
    CHECK(in_groups.operator()<LateInGroups>(in_folder<LateInGroups>(folder))
          == in_groups.operator()<InGroups>({}));
}

TEST_CASE("While an update is pending, calls of one rank are refused with the remedy, and work "
          "after it") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
            Late<N> engine(communicator, registration<bfloat16>(toy_specs()),
                           in_folder<Late<N>>(folder));
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            (void)run_step(engine, rank, 0);
            TrainingState state(engine);
            auto const visit = [&] { engine.for_each_owned_slice([](auto const&) {}); };
            auto const acquire = [&] { (void)engine.acquire(0); };
            auto const count = [&] { engine.set_step_count(7); };
            auto const park = [&] { offload_states(engine, {.path = folder.path()}); };
            auto const set = [&] { state.set_local_fp32_parameter(0, 0, {}); };
            auto const read = [&] { (void)state.local_fp32_parameter(0); };
            auto const join = [&] { engine.join(); };
            auto const require_refusal = [&](char const* name, auto const& call) {
                CHECK_THAT(refusal(call), contains_text(std::string("OutOfOrder: zero: ") + name));
                CHECK_THAT(refusal(call), contains_text("while the update of the last step is "
                                                        "pending (zero::DelayedUpdate); call "
                                                        "engine.settle() on every rank first, "
                                                        "between two steps"));
            };
            require_refusal("for_each_owned_slice()", visit);
            require_refusal("acquire()", acquire);
            require_refusal("set_step_count()", count);
            require_refusal("offload_states()", park);
            require_refusal("set_local_fp32_parameter()", set);
            require_refusal("access to states", read);
            require_refusal("join()", join);
            auto const visit_full = [&] {
                engine.for_each_full_parameter([](std::size_t, auto) {});
            };
            require_refusal("for_each_full_parameter()", visit_full);
            CHECK(engine.is_update_pending());
            engine.begin_step();
            require_refusal("for_each_owned_slice()", visit); // the update may run now
            {
                auto const weights = engine.acquire(0);
                engine.cancel_step();
                CHECK_THAT(refusal([&] { engine.settle(); }), contains_text("settle()"));
                CHECK_THAT(refusal([&] { (void)state.full_fp32_parameter(0); }),
                           contains_text("reading a full state"));
                CHECK(engine.is_update_pending());
            }
            engine.settle();
            CHECK_FALSE(engine.is_update_pending());
            visit();
            acquire();
            (void)state.local_fp32_parameter(0);
            engine.settle(); // again, with nothing to do
            engine.begin_step();
            CHECK_THAT(refusal([&] { engine.settle(); }), contains_text("settle() inside a step"));
            engine.cancel_step();
            (void)run_step(engine, rank, 1);
            CHECK(engine.is_update_pending());
            (void)state.full_fp32_parameter(0); // a collective call publishes it
            CHECK_FALSE(engine.is_update_pending());
            return 0;
        });
    });
}

TEST_CASE("A warm-up without a delay would be ignored, and is counted again after a load") {
    TemporaryFolder const folder;
    auto group = LoopbackCommunicator::make_group(1);
    auto prompt = in_folder<Prompt<2>>(folder);
    prompt.offload.warm_up_steps = 1;
    CHECK_THROWS_AS(Prompt<2>(group.front(), registration<bfloat16>(toy_specs()), prompt),
                    InvalidArgument);
    auto options = in_folder<Late<2>>(folder);
    options.offload.warm_up_steps = 2;
    Late<2> engine(group.front(), registration<bfloat16>(toy_specs()), options);
    std::vector<bool> pending;
    for (std::uint64_t step = 0; step < 6; ++step) {
        if (step == 4) {
            engine.settle();
            engine.set_step_count(1);
        }
        (void)run_step(engine, 0, step);
        pending.push_back(engine.is_update_pending());
    }
    CHECK(pending == std::vector<bool>{false, false, true, true, false, true});
    engine.settle();
}

TEST_CASE("What a rank holds after a failure has the last update in all of its parts") {
    in_every_stage([&]<int N>() {
        using Float = ZeroStage<N, StatesOnly>;
        TemporaryFolder const folder;
        Trained found;
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Float engine(communicator, registration<float>(toy_specs()), in_folder<Float>(folder));
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)run_step(engine, rank, step).report();
            }
            if (rank == 1) {
                throw std::runtime_error("the model fails");
            }
            try {
                for (std::uint64_t step = 3; step < 9; ++step) {
                    (void)run_step(engine, rank, step).report();
                }
            } catch (Error const&) { // the engine is broken, and its state can be read
                found.resize(toy_specs());
                engine.for_each_owned_slice([&](auto const& slice) { found.add(slice); });
                throw;
            }
        });
        CHECK(outcomes.ranks[0].type == "Aborted");
        auto const expected = trained_parts<ZeroStage<N>>(3)[0];
        CHECK((found == expected));
    });
}

TEST_CASE("An engine that delays nothing has nothing to settle") {
    auto group = LoopbackCommunicator::make_group(1);
    InMemory<2> engine(group.front(), registration<bfloat16>(toy_specs()));
    (void)run_step(engine, 0, 0);
    CHECK_FALSE(engine.is_update_pending());
    engine.settle();
}

TEST_CASE("The warm-up is equal on all ranks, and the description names the delay") {
    CHECK_THAT(describe<Late<2>>(),
               contains_text(", optimizer state and master weights in FileTier, each during the "
                             "next step, reduced by"));
    TemporaryFolder const folder;
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        auto options = in_folder<Late<1>>(folder);
        options.offload.warm_up_steps = static_cast<std::uint64_t>(communicator.rank());
        Late<1> const engine(communicator, registration<bfloat16>(toy_specs()), options);
    });
    for (auto const& outcome : outcomes.ranks) {
        CHECK(outcome.type == "LayoutMismatch");
        CHECK_THAT(outcome.message, contains_text("'offload.warm_up_steps' (0 and 1)"));
    }
}

TEST_CASE("The memory plan holds the copies for a delayed update") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        HostMemoryResource memory;
        std::size_t staging[2] = {};
        auto const plan_of = [&]<class Stage>(std::size_t& bytes) {
            on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
                auto options = in_folder<Stage>(folder);
                options.memory = &memory;
                Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                (void)run_step(engine, 0, 0);
                (void)run_step(engine, 0, 1);
                auto const plan = engine.memory_plan();
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    auto const own = static_cast<BufferKind>(kind);
                    INFO(name_of(own));
                    if (own != BufferKind::communicator) {
                        CHECK(memory.allocated_bytes(own) == plan[own].bytes());
                    }
                }
                bytes = plan[BufferKind::staging].bytes();
                return 0;
            });
        };
        plan_of.template operator()<Late<N>>(staging[0]);
        plan_of.template operator()<Prompt<N>>(staging[1]);
        constexpr std::size_t elements = 300 + 500 + 7 + 129 + 64 + 1; // those that are trained
        std::size_t const copies = staging[0] - staging[1];
        CHECK(copies >= elements * (sizeof(float) + sizeof(bfloat16)));
        CHECK(copies < elements * (sizeof(float) + sizeof(bfloat16)) + 2000); // and rows of groups
        CHECK(memory.allocated_bytes() == 0);
    });
}

TEST_CASE("A pass may run before the states of the last update were read") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        DelayedFiles files(1, 0);
        std::atomic<std::size_t> begun{0}, passed{0};
        std::atomic<std::size_t> allowed{std::numeric_limits<std::size_t>::max()};
        files.before_read_at = [&](std::uint64_t) {
            std::size_t const number = begun++;
            for (auto count = allowed.load(); count <= number; count = allowed.load()) {
                allowed.wait(count);
            }
            ++passed;
            passed.notify_all();
        };
        on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
            Late<N> engine(communicator, registration<bfloat16>(toy_specs()),
                           in_folder<Late<N>>(folder, &files));
            std::size_t const before = files.reads;
            (void)run_step(engine, 0, 0);
            engine.settle();
            (void)full_parameters(engine); // waits
            std::size_t const of_update = files.reads - before;
            CHECK(of_update > 2);
            allowed = files.reads.load();
            for (std::uint64_t step = 1; step < 5; ++step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_micro_step(engine, 0, step, micro_step); // would wait for the update
                    CHECK(passed == allowed);
                    allowed += step == 1 ? 0 : of_update; // those of the step before
                    allowed.notify_all();
                    // The next update's reads may not take the place of these.
                    for (auto count = passed.load(); count < allowed; count = passed.load()) {
                        passed.wait(count);
                    }
                }
                (void)engine.step(0.01);
            }
            allowed += of_update;
            allowed.notify_all();
            return 0;
        });
    });
}

TEST_CASE("A request of a delayed update that fails is thrown by a later call, and peers get "
          "Aborted") {
    for (bool const is_write : {false, true}) {
        in_every_stage([&]<int N>() {
            INFO((is_write ? "write" : "read"));
            TemporaryFolder const folder;
            DelayedFiles healthy(1), failing(2);
            auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                bool const fails = communicator.rank() == 1;
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                Late<N> engine(communicator, registration<bfloat16>(toy_specs()),
                               in_folder<Late<N>>(folder, fails ? &failing : &healthy));
                if (fails) {
                    (is_write ? failing.on_write : failing.on_read) = [&](std::size_t call) {
                        return call > 8 ? std::int64_t{-EIO} : std::int64_t{0};
                    };
                }
                for (std::uint64_t step = 0; step < 50; ++step) {
                    (void)run_step(engine, rank, step);
                }
                engine.settle();
            });
            CHECK(outcomes.ranks[0].type == "Aborted");
            CHECK_THAT(outcomes.ranks[0].message, contains_text("rank 1"));
            CHECK_THAT(outcomes.ranks[1].message,
                       contains_text("optimizer state and master weights of '"));
            CHECK(healthy.created == healthy.closed);
            CHECK(failing.created == failing.closed);
        });
    }
}

TEST_CASE("Steps that throw for infinite gradients delay the others") {
    TemporaryFolder const folder;
    auto const ranks = on_ranks<std::vector<bool>>(2, [&](LoopbackCommunicator& communicator) {
        auto options = in_folder<Late<2>>(folder);
        options.non_finite = NonFinite::throw_error;
        Late<2> engine(communicator, registration<bfloat16>(toy_specs()), options);
        InMemory<2> expected(communicator, registration<bfloat16>(toy_specs()),
                             {.non_finite = NonFinite::throw_error});
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        std::vector<bool> holds;
        for (std::uint64_t step = 0; step < 4; ++step) {
            for (int turn = step == 2 ? 0 : 1; turn < 2; ++turn) {
                auto const train = [&](auto& stage) {
                    stage.begin_step();
                    for (auto const micro_step : stage.micro_steps(1)) {
                        float const infinite = std::numeric_limits<float>::infinity();
                        run_micro_step(stage, rank, step, micro_step, turn == 0 ? infinite : 1.0F);
                    }
                    bool is_thrown = false;
                    try {
                        (void)stage.step(0.01);
                    } catch (NonFiniteGradients const&) {
                        is_thrown = true;
                    }
                    holds.push_back(is_thrown == (turn == 0));
                };
                train(engine);
                holds.push_back(engine.is_update_pending());
                train(expected);
            }
        }
        holds.push_back(full_parameters(engine) == full_parameters(expected));
        return holds;
    });
    CHECK(ranks[0] == std::vector<bool>(16, true));
    CHECK(ranks[1] == ranks[0]);
}

TEST_CASE("Numbers of updates that are set for single parameters reach the updates that follow") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        auto const run = [&]<class Stage>() {
            return on_ranks<std::vector<std::vector<float>>>(
                2, [&](LoopbackCommunicator& communicator) {
                    auto options = in_folder<Stage>(folder);
                    Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                    auto const rank = static_cast<std::uint64_t>(communicator.rank());
                    for (std::uint64_t step = 0; step < 5; ++step) {
                        if (step == 2) {
                            engine.settle();
                            TrainingState(engine).set_updates(3, 900);
                        }
                        (void)run_step(engine, rank, step);
                    }
                    return full_parameters(engine);
                })[0];
        };
        CHECK(run.template operator()<Late<N>>() == run.template operator()<InMemory<N>>());
    });
}

} // namespace zero::test::offload_delayed_test
