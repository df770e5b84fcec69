#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/ranks.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <zero/comm/recording.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/master_weights.hpp>
#include <zero/policy/optimizer_state.hpp>
#include <zero/policy/parameters.hpp>
#include <zero/stage/zero_stage.hpp>

// Models with many small parameters and units. The cost that grows with their number is
// counted in commands and collectives, which do not depend on the machine.

namespace zero::test::many_parameters_test {

namespace {

constexpr int world = 2;
constexpr std::size_t elements = 3; // less than the granularity, so each parameter has padding

/// Runs and counts commands. Counts waits by call, whether or not the event is complete.
class CountingQueue final : public host::Queue {
public:
    [[nodiscard]] host::Event record() override { return {}; }
    void wait(host::Event const& event) override {
        event.synchronise();
        ++waits;
    }
    void rethrow_failure() const override {}

    std::size_t commands = 0;
    std::size_t waits = 0;

private:
    void push(host::Command command) override {
        command();
        ++commands;
    }
};

template <class T>
struct Model {
    /// @param units the number of units; each gets a block of consecutive parameters
    Model(std::size_t count, std::size_t units) : values(count * elements) {
        for (std::size_t index = 0; index < values.size(); ++index) {
            values[index] = from_float<T>(static_cast<float>(index % 64) / 64.0F);
        }
        for (std::size_t index = 0; index < count; ++index) {
            parameters.push_back({.name = "p" + std::to_string(index),
                                  .initial = values.data() + index * elements,
                                  .elements = elements,
                                  .units = {index * units / count}});
        }
    }

    std::vector<T> values;
    std::vector<Parameter<T>> parameters;
};

template <class Engine>
void run_micro_step(Engine& engine, host::Queue& compute, bool is_zeroed = true) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit, {}, is_zeroed);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            compute.enqueue([gradient = gradients[parameter], parameter] {
                for (auto& element : gradient) {
                    element = from_float<typename Engine::GradientType>(
                        static_cast<float>(parameter % 7) - 3.0F);
                }
            });
        }
        engine.gradients_ready(unit);
    }
}

struct Counts {
    std::size_t commands = 0;
    std::size_t broadcasts = 0;
};

/// Returns what rank 0, which sends the values, enqueues on the communication queue during
/// construction.
template <class Stage>
Counts construct(std::size_t parameters) {
    return on_ranks<Counts, LoopbackCommunicator>(world, [&](LoopbackCommunicator& transport) {
        Recording<LoopbackCommunicator> communicator(transport);
        CountingQueue queue;
        Model<typename Stage::ParameterType> model(parameters, 4);
        Stage const engine(communicator, model.parameters, {.communication_queue = &queue});
        return Counts{queue.commands + queue.waits,
                      communicator.recorded()[CollectiveKind::broadcast].calls};
    })[0];
}

template <int N, class... Policies>
using Recorded = ZeroStage<N, Recording<LoopbackCommunicator>, Policies...>;
template <int N>
using Mixed = Recorded<N, Parameters<bfloat16>, MasterWeights<float>>;

/// One command copies the registered values of a parameter; everything else is done by buffer.
template <class Stage>
void check_construction() {
    Counts const few = construct<Stage>(100);
    Counts const more = construct<Stage>(300);
    CHECK(more.commands - few.commands == 200);
    CHECK(more.broadcasts == few.broadcasts);
}

} // namespace

TEST_CASE("Construction enqueues one command per parameter, in every stage and form of state") {
    SECTION("stage 0") {
        check_construction<Mixed<0>>();
    }
    SECTION("stage 2") {
        check_construction<Mixed<2>>();
    }
    SECTION("stage 3") {
        check_construction<Mixed<3>>();
    }
    SECTION("split master weights, scaled states") {
        check_construction<
            Recorded<2, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>>();
    }
}

TEST_CASE("The commands that a micro-step adds to the communication queue do not depend on the "
          "number of units in a bucket") {
    for (bool const is_zeroed : {true, false}) {
        INFO("gradients are zeroed: " << is_zeroed);
        std::vector<std::size_t> communicated;
        for (std::size_t const units : {20U, 60U}) {
            auto const counts =
                on_ranks<std::vector<std::size_t>>(world, [&](LoopbackCommunicator& communicator) {
                    CountingQueue queue;
                    CountingQueue compute;
                    Model<float> model(2 * units, units);
                    ZeroStage<2> engine(communicator, model.parameters,
                                        {.compute_queue = &compute, .communication_queue = &queue});
                    engine.begin_step();
                    std::size_t const before = queue.commands + queue.waits;
                    std::size_t const computed = compute.commands;
                    engine.begin_micro_step(MicroStep::last);
                    run_micro_step(engine, compute, is_zeroed);
                    engine.end_micro_step();
                    std::vector<std::size_t> found{queue.commands + queue.waits - before,
                                                   compute.commands - computed};
                    (void)engine.step(0.1);
                    return found;
                });
            communicated.push_back(counts[0][0]);
            // the model's own, and one that clears the gradients of a unit
            CHECK(counts[0][1] == 2 * units + (is_zeroed ? units : 0));
        }
        CHECK(communicated[0] == communicated[1]);
    }
}

namespace {

/// Returns the parameters of rank 1 after two steps.
template <class Stage, class MakeQueue>
std::vector<float> train(std::size_t parameters, std::size_t units, MakeQueue const& make_queue,
                         bool poison = false) {
    return on_ranks<std::vector<float>>(world, [&](LoopbackCommunicator& communicator) {
        std::unique_ptr<host::Queue> const queue = make_queue();
        host::InlineQueue compute;
        Model<typename Stage::ParameterType> model(parameters, units);
        typename Stage::Options options{.poison = poison};
        if (queue != nullptr) {
            options.communication_queue = queue.get();
        }
        Stage engine(communicator, model.parameters, options);
        for (int step = 0; step < 2; ++step) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            run_micro_step(engine, compute);
            engine.end_micro_step();
            (void)engine.step(0.01).report();
        }
        std::vector<float> result;
        engine.for_each_full_parameter([&](std::size_t, auto values) {
            for (auto const value : values) {
                result.push_back(to_float(value));
            }
        });
        return result;
    })[1];
}

std::unique_ptr<host::Queue> own() {
    return nullptr;
}
std::unique_ptr<host::Queue> at_once() {
    return std::make_unique<host::InlineQueue>();
}
std::unique_ptr<host::Queue> narrow() {
    return std::make_unique<host::WaitingQueue>(3);
}
std::unique_ptr<host::Queue> bounded() {
    return std::make_unique<host::ThreadedQueue>(2048);
}
std::unique_ptr<host::Queue> delaying() {
    return std::make_unique<host::DelayingQueue>(7, 20, 5, host::WhenFull::wait);
}

using Two = ZeroStage<2, Parameters<bfloat16>, MasterWeights<float>>;
using Three = ZeroStage<3, Parameters<bfloat16>, MasterWeights<float>>;

/// Compares every kind of queue with the inline queue, on which nothing can be full.
template <class Stage>
void check_queues(std::size_t parameters, std::size_t units) {
    auto const expected = train<Stage>(parameters, units, at_once);
    REQUIRE(expected.size() == parameters * elements);
    CHECK(expected[0] != 0.0F); // the second parameter of the model was trained
    CHECK(train<Stage>(parameters, units, own) == expected);
    CHECK(train<Stage>(parameters, units, narrow) == expected);
    CHECK(train<Stage>(parameters, units, bounded) == expected);
    CHECK(train<Stage>(parameters, units, bounded, true) == expected);
}

} // namespace

TEST_CASE("A model of 9000 parameters trains on every kind of communication queue") {
    SECTION("stage 2") {
        check_queues<Two>(9000, 300);
    }
    SECTION("stage 3") {
        check_queues<Three>(9000, 300);
    }
}

TEST_CASE("A delaying queue of five commands that waits for room gives the same bits") {
    CHECK(train<Two>(60, 20, delaying) == train<Two>(60, 20, at_once));
    CHECK(train<Three>(60, 20, delaying) == train<Three>(60, 20, at_once));
}

TEST_CASE(
    "Fifty micro-steps of 200 units in one bucket run ahead of a compute queue that is held") {
    constexpr std::size_t units = 200;
    constexpr std::size_t micro_steps = 50;
    auto const values = on_ranks<float>(world, [&](LoopbackCommunicator& communicator) {
        host::ThreadedQueue compute(65'536);
        Model<float> model(units, units);
        ZeroStage<2, Sgd> engine(communicator, model.parameters,
                                 {.optimizer = {.momentum = 0},
                                  .reduction = {.schedule = ReductionSchedule::boundary},
                                  .compute_queue = &compute});
        Gate gate;
        gate.hold(compute);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(micro_steps)) {
            run_micro_step(engine, compute);
        }
        auto const ticket = engine.step(1.0);
        gate.open();
        (void)ticket.report();
        float result = 0.0F;
        engine.for_each_full_parameter([&](std::size_t parameter, std::span<float const> found) {
            result = parameter == 5 ? found[0] : result;
        });
        return result;
    });
    // initial value 15/64, gradient 5 - 3, learning rate 1
    CHECK(values[0] == 15.0F / 64.0F - 2.0F);
    CHECK(values[1] == values[0]);
}

} // namespace zero::test::many_parameters_test
