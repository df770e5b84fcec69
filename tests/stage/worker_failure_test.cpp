#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>

// A command fails on a queue of one rank. That rank gets the exception from its next call, the
// others get `Aborted`, and the engine stays readable.

namespace zero::test::worker_failure_test {

namespace {

constexpr int world = 3;
constexpr int failing = 1;

/// Selects the operation of the calling rank that fails next.
enum class Fault { none, sum, inspect, update };

struct FaultyBackend : HostBackend {
    inline static thread_local Fault fault = Fault::none;

    static void perhaps_fail(Queue queue, Fault operation) {
        if (fault == operation) {
            fault = Fault::none;
            queue->enqueue([] { throw std::runtime_error("the disk is on fire"); });
        }
    }

    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int ranks,
                          std::size_t elements) {
        perhaps_fail(queue, Fault::sum);
        HostBackend::sum_ranks(queue, out, peers, ranks, elements);
    }

    template <class A, class Inspection>
    static void inspect(Queue queue, std::span<InspectSlice<A> const> slices, Inspection* result) {
        perhaps_fail(queue, Fault::inspect);
        HostBackend::inspect(queue, slices, result);
    }

    template <class Optimizer, class Slice, class Group>
    static void update(Queue queue, std::span<Slice const> slices, Group const* groups,
                       UpdateDecision const* decision) {
        perhaps_fail(queue, Fault::update);
        HostBackend::update<Optimizer>(queue, slices, groups, decision);
    }
};

using FaultyCommunicator = Loopback<FaultyBackend>;

/// The behaviour of rank 1's engine after the failure.
struct Seen {
    Outcome first; ///< outcome of the first call that threw
    Outcome begin, acquire, changed, full;
    std::uint64_t step_count = 0;
    std::size_t owned = 0;
    bool is_finite = true;
};

template <class Engine, class Body>
void observe(Engine& engine, Seen& seen, Body const& body) {
    try {
        body();
    } catch (...) {
        seen.first = outcome_of_current_exception();
        seen.begin = outcome_of([&] { engine.begin_step(); });
        seen.acquire = outcome_of([&] { (void)engine.acquire(0); });
        seen.changed = outcome_of([&] { engine.parameters_changed(); });
        seen.full = outcome_of([&] { (void)full_parameters(engine); });
        seen.step_count = engine.step_count();
        engine.for_each_owned_slice([&](auto const& slice) {
            for (float const value : slice.values) {
                ++seen.owned;
                seen.is_finite = seen.is_finite && value == value;
            }
        });
        throw;
    }
}

void check(Outcomes const& outcomes, Seen const& seen, std::string const& cause,
           std::uint64_t step_count) {
    for (int rank = 0; rank < world; ++rank) {
        Outcome const& outcome = outcomes.ranks[static_cast<std::size_t>(rank)];
        INFO("rank " << rank << ": " << outcome.message);
        CHECK(outcome.type == (rank == failing ? "other" : "Aborted"));
        CHECK_THAT(outcome.message, contains_text(cause));
    }
    CHECK(outcomes.rethrown == Outcome{"other", cause});
    CHECK(seen.first == Outcome{"other", cause});
    for (Outcome const& refused : {seen.begin, seen.acquire, seen.changed, seen.full}) {
        CHECK(refused.type == "BrokenEngine");
        CHECK_THAT(refused.message, contains_text("this engine failed earlier (" + cause + ")")
                                        && contains_text("its state can be read"));
    }
    CHECK(seen.step_count == step_count);
    CHECK(seen.owned > 0);
    CHECK(seen.is_finite);
}

/// Runs a complete step, then one in which `fault` strikes rank 1, then steps until a call throws.
template <int N>
void fail_on_communication_queue(Fault fault, bool is_inline) {
    Seen seen;
    auto const outcomes =
        run_and_observe<FaultyCommunicator>(world, [&](FaultyCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            typename ZeroStage<N, FaultyCommunicator>::Options options;
            options.communication_queue =
                is_inline ? std::optional(HostBackend::default_compute_queue()) : std::nullopt;
            ZeroStage<N, FaultyCommunicator> engine(communicator, registration<float>(toy_specs()),
                                                    options);
            (void)run_step(engine, rank, 0).report();
            FaultyBackend::fault = rank == failing ? fault : Fault::none;
            Seen ignored;
            observe(engine, rank == failing ? seen : ignored, [&] {
                for (std::uint64_t step = 1; step < 4; ++step) {
                    (void)run_step(engine, rank, step).report();
                }
            });
        });
    FaultyBackend::fault = Fault::none;
    check(outcomes, seen, "the disk is on fire",
          fault == Fault::update ? 2 : 1); // an update follows the decision, which counts the step
}

} // namespace

TEST_CASE("A command of a collective that throws on the communication queue is kept and aborts the "
          "group") {
    in_every_stage([]<int N>() { fail_on_communication_queue<N>(Fault::sum, false); });
}

TEST_CASE("A collective that throws on the caller's thread aborts the group") {
    in_every_stage([]<int N>() { fail_on_communication_queue<N>(Fault::sum, true); });
}

TEST_CASE("An exception inside step aborts the group, whether its commands run on a worker or on "
          "the caller's thread") {
    in_every_stage([]<int N>() {
        for (bool const is_inline : {false, true}) {
            fail_on_communication_queue<N>(Fault::inspect, is_inline);
            fail_on_communication_queue<N>(Fault::update, is_inline);
        }
    });
}

TEST_CASE(
    "A command of the model that throws on a threaded compute queue is kept and aborts the group") {
    in_every_stage([]<int N>() {
        Seen seen;
        auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            host::ThreadedQueue compute;
            ZeroStage<N> engine(communicator, registration<float>(toy_specs()),
                                {.compute_queue = &compute});
            Seen ignored;
            observe(engine, rank == failing ? seen : ignored, [&] {
                for (std::uint64_t step = 0; step < 4; ++step) {
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                            auto const weights = engine.acquire(unit);
                            auto const gradients = engine.gradients(unit);
                            if (rank == failing && step == 1 && unit == 2) {
                                compute.enqueue(
                                    [] { throw std::runtime_error("layer 2 divided by zero"); });
                            }
                            auto const gradient =
                                gradients[engine.layout().unit_parameters(unit).front()];
                            compute.enqueue([gradient] { gradient[0] += 1.0F; });
                            compute.synchronise(); // the step is enqueued after the failure
                            engine.gradients_ready(unit);
                        }
                    }
                    (void)engine.step(0.01).report();
                }
            });
        });
        check(outcomes, seen, "layer 2 divided by zero", 1);
    });
}

TEST_CASE("A command of the model breaks the engine even if it throws the exception of a refusal") {
    Outcome first, second;
    (void)run_and_observe(1, [&](LoopbackCommunicator& communicator) {
        host::ThreadedQueue compute;
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.compute_queue = &compute});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        compute.enqueue([] { throw OutOfOrder("the model's own"); });
        compute.synchronise();
        first = outcome_of([&] { (void)engine.gradients(2); });
        second = outcome_of([&] { (void)engine.gradients(2); });
    });
    CHECK(first == Outcome{"OutOfOrder", "the model's own"});
    CHECK(second.type == "BrokenEngine");
}

TEST_CASE("A step whose model failed on the compute queue does not report success") {
    Outcome report;
    auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
        host::ThreadedQueue compute;
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.compute_queue = &compute});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        // on the queue that clears the gradient
        compute.enqueue([gradient = engine.gradients(0)[0].data()] { *gradient = 1.0F; });
        engine.end_micro_step();
        std::atomic<bool> is_enqueued{false};
        compute.enqueue([flag = &is_enqueued] {
            flag->wait(false);
            throw std::runtime_error("too late to be seen by step");
        });
        auto const ticket = engine.step(0.01);
        is_enqueued = true;
        is_enqueued.notify_all();
        compute.synchronise();
        report = outcome_of([&] { (void)ticket.report(); });
        (void)engine.acquire(0);
    });
    CHECK(report == Outcome{"other", "too late to be seen by step"});
    CHECK(outcomes.rethrown.type == "BrokenEngine");
}

} // namespace zero::test::worker_failure_test
