#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/recording.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace zero::test::join_test {

namespace {

/// A loopback communicator that counts the calls of `forget_events`.
struct Counting : Recording<LoopbackCommunicator> {
    using Recording::Recording;
    int forgotten = 0;
    void forget_events() noexcept { ++forgotten; }
};

/// A communicator without events.
struct Eventless : Recording<LoopbackCommunicator> {
    using Recording::Recording;
    void forget_events() = delete;
};

template <class C>
constexpr bool forgets = requires(C& communicator) { communicator.forget_events(); };

/// Returns the state of all ranks after some steps, with or without `join` around each.
template <class Stage>
std::vector<std::vector<std::uint32_t>> run(bool joins) {
    return on_ranks<std::vector<std::uint32_t>>(2, [&](LoopbackCommunicator& communicator) {
        host::DelayingQueue queue(static_cast<std::uint64_t>(communicator.rank()));
        typename Stage::Options options;
        options.gradient_clipping = 0.5F;
        options.communication_queue = &queue;
        Stage engine(communicator, registration<float>(toy_specs()), options);
        for (std::uint64_t step = 0; step < 4; ++step) {
            if (joins) {
                engine.join();
            }
            engine.set_learning_rate(0, 0.5 + static_cast<double>(step));
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2);
            if (joins) {
                engine.join();
            }
        }
        return snapshot(engine);
    });
}

} // namespace

TEST_CASE("Joining the queues between steps changes no bit", "[stage]") {
    in_every_stage([]<int N>() { CHECK(run<ZeroStage<N>>(true) == run<ZeroStage<N>>(false)); });
}

TEST_CASE("A join also makes a decorated communicator forget its events", "[stage]") {
    using Decorated = Checked<Recording<Counting>>;
    STATIC_REQUIRE(forgets<Decorated>);
    STATIC_REQUIRE_FALSE(forgets<Checked<Eventless>>);
    STATIC_REQUIRE_FALSE(forgets<Recording<Eventless>>);
    auto const counts = on_ranks<std::vector<int>>(2, [](LoopbackCommunicator& loopback) {
        Counting counting(loopback);
        Recording<Counting> recording(counting);
        Decorated checked(recording);
        ZeroStage<2, Decorated> engine(checked, registration<float>(toy_specs()), {});
        int const before = counting.forgotten;
        engine.join();
        return std::vector<int>{before, counting.forgotten};
    });
    CHECK(counts == std::vector<std::vector<int>>(2, {0, 1}));
}

TEST_CASE("After a join the compute queue has waited for the engine", "[stage]") {
    auto const completes = on_ranks<int>(2, [](LoopbackCommunicator& communicator) {
        host::ThreadedQueue compute;
        ZeroStage<2>::Options options;
        options.compute_queue = &compute;
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()), options);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            (void)engine.gradients(0)[0];
        }
        auto const ticket = engine.step(0.1);
        engine.join();
        compute.synchronise();
        return ticket.done().is_complete() ? 1 : 0;
    });
    CHECK(completes == std::vector<int>{1, 1});
}

TEST_CASE("A loss scale captured before a join is still waited for", "[stage]") {
    auto const scales = on_ranks<float>(1, [](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<2, DynamicLossScaler>;
        host::ThreadedQueue compute;
        Stage::Options options;
        options.compute_queue = &compute;
        Stage engine(communicator, registration<float>(toy_specs()), options);
        engine.set_loss_scale(64.0F);
        Gate gate;
        gate.hold(compute); // the capture of the scale is enqueued after it
        engine.begin_step();
        auto const scale = engine.loss_scale();
        engine.cancel_step();
        engine.join();
        gate.open_by_another_thread();
        return static_cast<float>(scale);
    });
    CHECK(scales == std::vector<float>{64.0F});
}

TEST_CASE("A join inside a step, or while stage 3 holds weights, is refused", "[stage]") {
    auto const texts =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            ZeroStage<3> engine(communicator, registration<float>(toy_specs()), {});
            std::vector<std::string> seen;
            {
                auto const weights = engine.acquire(0);
                seen.push_back(outcome_of([&] { engine.join(); }).message);
            }
            engine.begin_step();
            seen.push_back(outcome_of([&] { engine.join(); }).message);
            engine.cancel_step();
            seen.push_back(outcome_of([&] { engine.join(); }).type);
            return seen;
        });
    CHECK_THAT(texts[0][0], contains_text("join() while weights of unit "));
    CHECK_THAT(texts[0][1], contains_text("join() inside a step"));
    CHECK(texts[0][2] == "returned");
}

TEST_CASE("The last report belongs to the last step, and is all zero before the first", "[stage]") {
    auto const counts =
        on_ranks<std::vector<std::uint64_t>>(1, [](LoopbackCommunicator& communicator) {
            ZeroStage<1> engine(communicator, registration<float>(toy_specs()), {});
            std::vector<std::uint64_t> seen{engine.last_report().serial};
            for (std::uint64_t step = 0; step < 20; ++step) {
                auto const ticket = run_step(engine, 0, step);
                seen.push_back(engine.last_report().serial - ticket.report().serial);
            }
            seen.push_back(engine.last_report().step_count);
            return seen;
        });
    std::vector<std::uint64_t> expected(22, 0);
    expected.back() = 20;
    CHECK(counts[0] == expected);
}

} // namespace zero::test::join_test
