#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

// The model writes gradients on two queues, `slow` and `fast`, besides the compute queue. A gate
// holds `slow` until everything is enqueued, so a command that does not wait for `slow` runs too
// early.

namespace zero::test::several_queues_test {

namespace {

constexpr std::size_t elements = 100;

void add(host::Queue& queue, std::span<float> gradient, float value) {
    queue.enqueue([gradient, value] {
        for (float& element : gradient) {
            element += value;
        }
    });
}

/// One parameter of two units, trained by plain gradient descent from 0 with learning rate 1: after
/// a step it is minus the gradient.
template <int N>
struct Model {
    using Stage = ZeroStage<N, Sgd>;

    Model(LoopbackCommunicator& communicator, bool is_in_callers_memory)
        : callers(elements, 77.0F),
          handed_over{std::vector<float>(elements, 1.0F), std::vector<float>(elements, 2.0F)},
          engine(communicator,
                 {{.name = "shared",
                   .elements = elements,
                   .units = {0, 1},
                   .gradient = is_in_callers_memory ? callers.data() : nullptr}},
                 options()) {}

    typename Stage::Options options() {
        typename Stage::Options result;
        result.optimizer.momentum = 0;
        result.compute_queue = &compute;
        result.asynchronous = true; // the gate opens after `step`
        return result;
    }

    void write(std::size_t unit, host::Queue& queue, float value) {
        auto const gradients = engine.gradients(unit, &queue);
        add(queue, gradients[0], value);
    }

    /// Returns the last element after the step.
    float finish() {
        engine.end_micro_step();
        auto const ticket = engine.step(1.0);
        gate.open();
        (void)ticket.report();
        float result = 0.0F;
        engine.for_each_full_parameter(
            [&](std::size_t, std::span<float const> values) { result = values[elements - 1]; });
        return result;
    }

    std::vector<float> callers;
    std::array<std::vector<float>, 2> handed_over;
    host::ThreadedQueue compute;
    host::ThreadedQueue slow;
    host::ThreadedQueue fast;
    Stage engine;
    Gate gate;
};

/// Returns the parameter after `body(model)` has run in an open micro-step, for every stage.
template <class Body>
void check_trained(float expected, bool is_in_callers_memory, Body const& body) {
    in_every_stage([&]<int N>() {
        INFO((is_in_callers_memory ? "gradient in the caller's memory"
                                   : "gradient in the engine's memory"));
        auto const ranks = on_ranks<float>(1, [&](LoopbackCommunicator& communicator) {
            Model<N> model(communicator, is_in_callers_memory);
            model.engine.begin_step();
            model.engine.begin_micro_step(MicroStep::last);
            model.gate.hold(model.slow);
            body(model);
            return model.finish();
        });
        CHECK(ranks[0] == expected);
    });
}

template <class Body>
void check_trained_in_both_memories(float expected, Body const& body) {
    check_trained(expected, false, body);
    check_trained(expected, true, body);
}

} // namespace

TEST_CASE("Units that share a parameter write its gradient from separate queues") {
    check_trained_in_both_memories(-3.0F, [](auto& model) {
        model.write(1, model.slow, 1.0F);
        model.engine.gradients_ready(1, &model.slow);
        model.write(0, model.fast, 2.0F);
        model.engine.gradients_ready(0, &model.fast);
    });
}

TEST_CASE("A unit that only reports waits for the queue of the other unit") {
    check_trained_in_both_memories(-1.0F, [](auto& model) {
        model.write(1, model.slow, 1.0F);
        model.engine.gradients_ready(1, &model.slow);
        model.engine.gradients_ready(0, &model.fast);
    });
}

TEST_CASE("A second queue that takes a gradient finds it cleared") {
    check_trained_in_both_memories(-3.0F, [](auto& model) {
        auto const first = model.engine.gradients(1, &model.slow);
        model.write(0, model.fast, 2.0F);
        model.slow.wait(
            model.fast
                .record()); // ordering two writers of one gradient is the caller's responsibility
        add(model.slow, first[0], 1.0F);
        model.engine.gradients_ready(0, &model.fast);
        model.engine.gradients_ready(1, &model.slow);
    });
}

TEST_CASE("Gradients that are handed over on two queues are added one after the other") {
    check_trained(-3.0F, false, [](auto& model) {
        (void)model.engine.hand_over(1, 0, std::span<float const>(model.handed_over[0]),
                                     &model.slow);
        (void)model.engine.hand_over(0, 0, std::span<float const>(model.handed_over[1]),
                                     &model.fast);
        model.engine.gradients_ready(1, &model.slow);
        model.engine.gradients_ready(0, &model.fast);
    });
}

TEST_CASE("The end of a micro-step waits for queues that did not report") {
    check_trained_in_both_memories(-1.0F, [](auto& model) { model.write(1, model.slow, 1.0F); });
}

TEST_CASE("Writes of a queue in a cancelled step do not reach the next step") {
    check_trained_in_both_memories(-1.0F, [](auto& model) {
        model.write(1, model.slow, 100.0F);
        model.engine.cancel_step();
        model.engine.begin_step();
        model.engine.begin_micro_step(MicroStep::last);
        auto const gradients = model.engine.gradients(1, &model.fast);
        model.fast.wait(
            model.slow.record()); // memory that was cleared too early would no longer be zero
        add(model.fast, gradients[0], 1.0F);
        model.engine.gradients_ready(1, &model.fast);
        model.engine.gradients_ready(0, &model.fast);
    });
}

TEST_CASE("A command that fails on the model's own queue fails the step") {
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<Outcome>(1, [](LoopbackCommunicator& communicator) {
            Model<N> model(communicator, false);
            model.engine.begin_step();
            model.engine.begin_micro_step(MicroStep::last);
            model.gate.hold(model.slow);
            model.slow.enqueue([] { throw std::runtime_error("the disk is on fire"); });
            model.write(1, model.slow, 1.0F);
            model.engine.gradients_ready(1, &model.slow);
            return outcome_of([&] { (void)model.finish(); });
        });
        CHECK(ranks[0] == Outcome{"other", "the disk is on fire"});
    });
}

TEST_CASE("Changes of owned slices wait for reads that were enqueued before") {
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<float>(1, [](LoopbackCommunicator& communicator) {
            Model<N> model(communicator, false);
            float seen = -1.0F;
            model.gate.hold(model.slow);
            {
                auto const weights = model.engine.acquire(0, &model.slow);
                model.slow.enqueue([values = weights[0], &seen] { seen = values[elements - 1]; });
            }
            model.gate.open_by_another_thread();
            model.engine.for_each_owned_slice([](auto const& slice) {
                for (float& value : slice.values) {
                    value = 5.0F;
                }
            });
            model.slow.synchronise();
            return seen;
        });
        CHECK(ranks[0] == 0.0F);
    });
}

TEST_CASE("Changes by commands of the compute queue are sent after those commands") {
    constexpr int world = 2;
    auto const check = []<int N>() {
        auto const ranks = on_ranks<float>(world, [](LoopbackCommunicator& communicator) {
            using Stage = ZeroStage<N, Sgd>;
            host::ThreadedQueue compute;
            std::vector<float> block(elements, 1.0F);
            typename Stage::Options options;
            options.storage = Storage::adopted;
            options.adopted_block = block;
            options.compute_queue = &compute;
            Stage engine(communicator,
                         {{.name = "all", .data = block.data(), .elements = elements}}, options);
            Gate gate;
            gate.hold(compute);
            float const own = communicator.rank() == 0 ? 3.0F : 9.0F;
            compute.enqueue([values = std::span<float>(block), own] {
                for (float& value : values) {
                    value = own;
                }
            });
            gate.open_by_another_thread();
            engine.parameters_changed();
            compute.synchronise();
            return block[elements - 1];
        });
        CHECK(ranks == std::vector<float>{3.0F, 3.0F});
    };
    check.template operator()<0>();
    check.template operator()<2>();
}

} // namespace zero::test::several_queues_test
