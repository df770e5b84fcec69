#include "fake_communicator.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

// The engine over the NCCL communicator. Its fake library sums in rank order, so training gives the
// bits of the loopback.

namespace zero::test::nccl_stage_test {

namespace {

using Values = std::vector<std::vector<float>>; ///< values by parameter

template <class Stage, class Communicator>
Values train(Communicator& communicator, typename Stage::Options options) {
    options.reduction.schedule = ReductionSchedule::boundary; // the default differs between stages
    auto const parameters =
        registration<typename Stage::ParameterType, typename Stage::GradientType>(toy_specs());
    Stage engine(communicator, parameters, options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2, 0.01, 12);
    }
    return full_parameters(engine);
}

template <int N, class Communicator, class... Policies>
Values train_on(int world, bool gathers_apart = false) {
    using Stage = ZeroStage<N, Communicator, Policies...>;
    typename Stage::Options options{};
    options.gradient_clipping = 1.0F;
    options.gather.own_communicator = gathers_apart;
    std::vector<Values> ranks(static_cast<std::size_t>(world));
    auto const body = [&](Communicator& communicator) {
        ranks[static_cast<std::size_t>(communicator.rank())] = train<Stage>(communicator, options);
    };
    if constexpr (std::is_same_v<Communicator, LoopbackCommunicator>) {
        run_ranks(world, test_time_out, body);
    } else {
        run_nccl_ranks<Communicator>(world, body);
    }
    for (auto const& rank : ranks) {
        CHECK(rank == ranks[0]);
    }
    return ranks[0];
}

using NonBlocking = FakeNcclCommunicator<cuda::NcclMode::non_blocking>;
using Half = Parameters<bfloat16>;

/// Rank 0 prepares, enqueues without waiting and then waits in `use`, for a collective that rank 1
/// never calls: rank 1 only prepares, and aborts when rank 0 hangs and has enqueued everything.
/// @param early aborts after this number of turns instead
template <class Communicator, class Prepare, class Enqueue, class Use>
std::string text_of_hanging(Prepare const& prepare, Enqueue const& enqueue, Use const& use,
                            std::optional<int> early = {}) {
    std::string text = "nothing was thrown";
    std::atomic<bool> is_prepared{false};
    std::atomic<bool> is_enqueued{false};
    run_nccl_ranks<NonBlocking>(2, [&](NonBlocking& inner) {
        std::conditional_t<std::is_same_v<Communicator, NonBlocking>, NonBlocking&, Communicator>
            communicator(inner);
        auto const prepared = prepare(communicator);
        if (inner.rank() == 1) {
            while (early ? !is_prepared : !is_enqueued || inner.fakes->nccl.hanging == 0) {
                std::this_thread::yield();
            }
            // Give rank 0 time to pass its checks and start waiting. If it has not, its checks
            // throw the same error.
            for (int turn = 0; turn < early.value_or(1000); ++turn) {
                std::this_thread::yield();
            }
            inner.abort("the reason of rank 1");
            return;
        }
        is_prepared = true;
        try {
            auto const enqueued = enqueue(*prepared);
            is_enqueued = true;
            use(communicator, *prepared, enqueued);
        } catch (Aborted const& error) {
            text = error.what();
        }
    });
    return text;
}

/// The same for an engine that has run a step.
template <class Stage, class Enqueue, class Use>
std::string text_of_engine(Enqueue const& enqueue, Use const& use, std::optional<int> early = {}) {
    auto const prepare = [](auto& communicator) {
        auto engine = std::make_unique<Stage>(communicator, registration<float>(toy_specs()),
                                              typename Stage::Options{});
        (void)run_step(*engine, static_cast<std::uint64_t>(communicator.rank()), 0).report();
        return engine;
    };
    return text_of_hanging<typename Stage::Communicator>(
        prepare, enqueue,
        [&](auto&, Stage& engine, auto const& enqueued) { use(engine, enqueued); }, early);
}

/// The same for the construction of an engine.
template <class Stage>
std::string text_of_construction() {
    auto const nothing = [](auto&) { return std::make_unique<int>(); };
    return text_of_hanging<typename Stage::Communicator>(
        nothing, nothing, [](auto& communicator, int, auto const&) {
            Stage const engine(communicator, registration<float>(toy_specs()),
                               typename Stage::Options{});
        });
}

} // namespace

TEMPLATE_TEST_CASE_SIG("An engine over NCCL trains as over the loopback: even cuts", "",
                       ((int N), N), 0, 1, 2, 3) {
    for (int const world : {1, 2, 3}) {
        CHECK(train_on<N, NonBlocking>(world) == train_on<2, LoopbackCommunicator>(world));
    }
}

TEMPLATE_TEST_CASE_SIG(
    "An engine over NCCL trains as over the loopback: uneven cuts and 16-bit gradients", "",
    ((int N), N), 0, 2) {
    CHECK(train_on<N, NonBlocking, Half, RoundRobinPartitioner>(3)
          == train_on<1, LoopbackCommunicator, Half, RoundRobinPartitioner>(3));
}

TEST_CASE("Gathers over an NCCL communicator of their own give the bits of the loopback") {
    for (int const world : {1, 2, 3}) {
        CHECK(train_on<3, NonBlocking>(world, true) == train_on<2, LoopbackCommunicator>(world));
    }
}

TEST_CASE("Another number of ranks gives other bits, so the comparison can fail") {
    CHECK(train_on<2, LoopbackCommunicator>(2) != train_on<2, LoopbackCommunicator>(3));
}

TEST_CASE("A rank that fails inside a step releases the others with its reason") {
    Outcomes const outcomes = run_and_observe<NonBlocking>(3, [](NonBlocking& communicator) {
        using Stage = ZeroStage<2, NonBlocking>;
        auto const parameters = registration<float>(toy_specs());
        Stage engine(communicator, parameters, {});
        for (std::uint64_t step = 0; step < 1000; ++step) {
            if (communicator.rank() == 1 && step == 2) {
                engine.begin_step();
                throw std::runtime_error("no more data");
            }
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
        }
    });
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes.ranks[rank].type == "Aborted");
        CHECK_THAT(outcomes.ranks[rank].message, contains_text("rank 1"));
    }
    CHECK(outcomes.rethrown.message == "no more data");
}

TEMPLATE_TEST_CASE("Results of aborted collectives are not used after a wait", "", NonBlocking,
                   Recording<NonBlocking>) {
    using Stage = ZeroStage<2, TestType>;
    auto const reason = contains_text("the reason of rank 1");
    auto const after_step = [](auto const& read) {
        return text_of_engine<Stage>([](Stage& engine) { return run_step(engine, 0, 1); }, read);
    };
    int calls = 0;
    CHECK_THAT(after_step([](Stage&, auto const& ticket) { (void)ticket.report(); }), reason);
    CHECK_THAT(after_step([](Stage& engine, auto const&) { (void)engine.last_report(); }), reason);
    CHECK_THAT(after_step([](Stage& engine, auto const&) { (void)engine.step_count(); }), reason);
    CHECK_THAT(after_step([](Stage& engine, auto const&) { (void)engine.loss_scaler_state(); }),
               reason);
    CHECK_THAT(after_step([&](Stage& engine, auto const& ticket) {
                   // After the exception, the state can be read.
                   CHECK_THROWS_AS(ticket.report(), Aborted);
                   (void)engine.step_count();
                   (void)engine.last_report();
                   engine.for_each_owned_slice([](auto const&) {});
                   throw Aborted("the reason of rank 1, and the rest was read");
               }),
               contains_text("and the rest was read"));
    CHECK_THAT(after_step([](Stage& engine, auto const&) {
                   engine.begin_step();
                   (void)static_cast<float>(engine.loss_scale());
               }),
               reason);
    CHECK_THAT(after_step([&](Stage& engine, auto const&) {
                   engine.for_each_owned_slice([&](auto const&) { ++calls; });
               }),
               reason);
    CHECK_THAT(after_step([](Stage& engine, auto const&) { engine.parameters_changed(); }), reason);
    CHECK(calls == 0);
    for (int const turns : {0, 10, 100, 1000}) { // somewhere in the step
        CHECK_THAT(text_of_engine<Stage>([](Stage& engine) { return run_step(engine, 0, 1); },
                                         [](Stage&, auto const& ticket) { (void)ticket.report(); },
                                         turns),
                   reason);
    }
}

TEMPLATE_TEST_CASE("Calls that wait do not use the results of aborted collectives", "", NonBlocking,
                   Recording<NonBlocking>) {
    using Stage = ZeroStage<2, TestType>;
    using Sharded = ZeroStage<3, TestType>;
    auto const reason = contains_text("the reason of rank 1");
    auto const in_step = [](auto const& end) {
        return text_of_engine<Stage>(
            [](Stage& engine) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_micro_step(engine, 0, 1, 0);
                }
                return 0;
            },
            [&](Stage& engine, int) { end(engine); });
    };
    int calls = 0;
    CHECK_THAT(in_step([](Stage& engine) { (void)engine.gradient_norms(); }), reason);
    CHECK_THAT(
        in_step([&](Stage& engine) { (void)engine.step(0.01, [&](auto const&) { ++calls; }); }),
        reason);
    CHECK_THAT(text_of_engine<Sharded>([](Sharded&) { return 0; },
                                       [&](Sharded& engine, int) {
                                           engine.for_each_full_parameter(
                                               [&](std::size_t, auto) { ++calls; });
                                       }),
               reason);
    CHECK_THAT(text_of_construction<Stage>(), reason);
    std::string const checked = text_of_construction<ZeroStage<1, Checked<NonBlocking>>>();
    CHECK_THAT(checked, reason);
    CHECK(calls == 0);
}

TEST_CASE("Over NCCL, ranks that make different calls between steps both get the mismatch") {
    using Stage = ZeroStage<3, NonBlocking>; // below stage 3 a visit sends nothing
    auto const visit = [](Stage& engine, NonBlocking&) {
        engine.for_each_full_parameter([](std::size_t, auto) {});
    };
    auto const read = [](Stage& engine, NonBlocking&) {
        (void)TrainingState(engine).full_fp32_parameter(1);
    };
    auto const add = [](Stage&, NonBlocking& communicator) {
        (void)sum_over_ranks(communicator, 1.0);
    };
    auto const check = [](auto const& call, char const* text) {
        for (Outcome const& outcome :
             run_and_observe<NonBlocking>(2, [&](NonBlocking& communicator) {
                 Stage engine(communicator, registration<float>(toy_specs()));
                 if (communicator.rank() == 0) {
                     (void)TrainingState(engine).full_fp32_parameter(0);
                 } else {
                     call(engine, communicator);
                 }
             }).ranks) {
            CHECK(outcome.type == "CollectiveMismatch"); // not Aborted, with it as the cause
            CHECK_THAT(outcome.message,
                       contains_text("'values of parameter 0'") && contains_text(text));
        }
    };
    for (int repetition = 0; repetition < 5; ++repetition) {
        check(visit, "'for_each_full_parameter()");
        check(read, "'values of parameter 1'");
        check(add, "'sum_over_ranks(), sum");
    }
}

TEMPLATE_TEST_CASE("Ranks that choose different all-reduces get a LayoutMismatch that names the "
                   "communicator's options",
                   "", cuda::BasicNcclCommunicator<HostBackend>,
                   Recording<cuda::BasicNcclCommunicator<HostBackend>>,
                   Checked<cuda::BasicNcclCommunicator<HostBackend>>) {
    using Inner = cuda::BasicNcclCommunicator<HostBackend>;
    auto const outcomes_of = []<class Stage>(bool is_native_on_second, Stage const*) {
        FakeWorld fakes;
        cuda::NcclInterface const interfaces{&fakes.nccl, &fakes.system};
        cuda::NcclUniqueId const id = cuda::make_unique_id(interfaces);
        std::vector<Outcome> outcomes(2);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
                    FakeSystem::device = rank;
                    cuda::NcclOptions options;
                    options.time_out = std::chrono::seconds(60);
                    options.native_all_reduce = rank == 0 || is_native_on_second;
                    auto inner = Inner::from_unique_id(interfaces, id, rank, 2, options);
                    std::conditional_t<std::is_same_v<TestType, Inner>, Inner&, TestType>
                        communicator(inner);
                    Stage engine(communicator, registration<float>(toy_specs()));
                    inner.synchronise();
                });
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        return outcomes;
    };
    ZeroStage<0, TestType> const* const replicated = nullptr;
    ZeroStage<2, TestType> const* const sharded = nullptr; // refuses what another stage would
    auto const check = [&](auto const* stage) {
        for (Outcome const& outcome : outcomes_of(false, stage)) {
            CHECK(outcome.type == "LayoutMismatch");
            CHECK_THAT(
                outcome.message,
                contains_text(
                    "different options or policies: 'communicator'; give all ranks the same"));
        }
        for (Outcome const& outcome : outcomes_of(true, stage)) {
            CHECK(outcome == Outcome{});
        }
    };
    check(replicated);
    check(sharded);
}

TEST_CASE(
    "A rank that acquires units in another order is named over NCCL, which compares no tags") {
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < 3; ++unit) {
        specs.push_back({"w" + std::to_string(unit), 192, {unit}, 0, true});
    }
    auto const deviate = [&](GatherOptions const& gather, std::uint64_t step_of_change) {
        return run_and_observe<NonBlocking>(3, [&](NonBlocking& communicator) {
            ZeroStage<3, NonBlocking> engine(communicator, registration<float>(specs),
                                             {.gather = gather});
            for (std::uint64_t step = 0; step < 50; ++step) {
                engine.begin_step();
                engine.begin_micro_step();
                bool const is_odd = step == step_of_change && communicator.rank() == 1;
                for (std::size_t const unit : {0U, is_odd ? 2U : 1U, is_odd ? 1U : 2U}) {
                    (void)engine.acquire(unit);
                }
                for (std::size_t unit = 3; unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    engine.gradients(unit)[unit][0] += 1.0F;
                    engine.gradients_ready(unit);
                }
                engine.end_micro_step();
                (void)engine.step(0.1);
            }
        });
    };
    for (Outcome const& rank : deviate({}, 0).ranks) { // in the first step all ranks compare
        // The first rank that knows aborts the communicator, and may overtake the others.
        CHECK((rank.type == "CollectiveMismatch" || rank.type == "Aborted"));
        CHECK_THAT(rank.message,
                   contains_text("as number 1 of a micro-step rank 0 acquired unit 1 and rank 1 "
                                 "acquired unit 2; rank 0: 0, [1], 2, 2, 1, 0; rank 1: 0, [2], 1, "
                                 "2, 1, 0"));
    }
    // Later each rank compares its order with the agreed one, and tells the others if they differ.
    std::string const both = "its order is 0, [2], 1, 2, 1, 0, the recorded one 0, [1], 2, 2, 1, 0";
    auto const later = deviate({.prefetch_elements = 0}, 3);
    CHECK(later.ranks[1].type == "CollectiveMismatch");
    CHECK_THAT(later.ranks[1].message, contains_text(both));
    CHECK(later.ranks[0].type == "Aborted");
    CHECK_THAT(later.ranks[0].message, contains_text("rank 1 came to unit 2"));
    // With units in flight the collectives themselves would differ. With this option nothing is
    // sent.
    auto const refused = deviate({.changed_order = ChangedOrder::error}, 3);
    CHECK(refused.ranks[1].type == "OutOfOrder");
    CHECK(refused.ranks[0].type == "Aborted");
    CHECK_THAT(refused.ranks[0].message, contains_text("rank 1 acquires unit 2 as number 1"));
}

TEST_CASE(
    "The all-gathers at the end of a step in stages 1 and 2 are one group of NCCL, and give the "
    "bits of single ones") {
    auto const run = []<int N>(std::integral_constant<int, N>) {
        using Stage = ZeroStage<N, NonBlocking, Half>;
        std::size_t buckets = 0;
        std::size_t most_calls = 0;
        run_nccl_ranks<NonBlocking>(3, [&](NonBlocking& communicator) {
            typename Stage::Options options;
            options.bucketer.bucket_bytes = 128;
            Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
            for (std::uint64_t step = 0; step < 2; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
            }
            (void)engine.step_count(); // waits
            if (communicator.rank() == 0) {
                buckets = engine.layout().trainable_buckets();
                most_calls = communicator.fakes->nccl.most_calls;
            }
        });
        CAPTURE(N, buckets);
        CHECK(buckets > 2);
        CHECK(most_calls >= buckets); // more if a bucket is cut unevenly
        CHECK(train_on<N, NonBlocking, Half>(3) == train_on<N, LoopbackCommunicator, Half>(3));
    };
    run(std::integral_constant<int, 1>());
    run(std::integral_constant<int, 2>());
}

} // namespace zero::test::nccl_stage_test
