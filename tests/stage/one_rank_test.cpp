#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <atomic>
#include <vector>

#include <zero/comm/loopback.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

// Stage 3 on one rank reads parameters in the shard, which is the whole model. With one micro-step
// per step, every stage writes gradients where their sums are.

namespace zero::test::one_rank_test {

namespace {

/// Counts copies and waits, and notes whether the model had read its weights when the update ran.
struct ObservingBackend : HostBackend {
    inline static std::size_t copies = 0;
    inline static std::size_t pending = 0; ///< waits for a lease that is still in use
    inline static Gate* reader = nullptr;  ///< opened when the engine waits for the last readers
    inline static std::atomic<bool>* has_read = nullptr;
    inline static bool had_read = false;

    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        copies += out != in ? 1 : 0;
        HostBackend::copy_bytes(queue, out, in, bytes);
    }

    static void wait(Queue queue, Event const& event, Fence fence) {
        if (reader != nullptr && fence == Fence::parameter_lease_reuse) {
            reader->open();
        }
        pending += fence == Fence::gradient_lease_reuse && !event.is_complete() ? 1 : 0;
        HostBackend::wait(queue, event, fence);
    }

    template <class Optimizer, class Slice, class Group>
    static void update(Queue queue, std::span<Slice const> slices, Group const* groups,
                       UpdateDecision const* decision) {
        had_read = has_read != nullptr && has_read->load();
        if (reader != nullptr) {
            reader->open();
        }
        HostBackend::update<Optimizer>(queue, slices, groups, decision);
    }
};

using Communicator = Loopback<ObservingBackend>;
using Stage = ZeroStage<3, Communicator>;

/// Returns the copies of the second step.
std::size_t copies_of_step(bool poison, std::size_t kept_units) {
    auto ranks = Communicator::make_group(1);
    Stage engine(ranks[0], registration<float>(toy_specs()),
                 {.gradient_clipping = 0.5F,
                  .gather = {.keep_after_forward = kept_units},
                  .poison = poison});
    (void)engine.step_count();
    for (std::uint64_t step = 0; step < 2; ++step) {
        ObservingBackend::copies = 0;
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_micro_step(engine, 0, step, micro_step);
        }
        (void)engine.step(0.1).report();
    }
    return ObservingBackend::copies;
}

} // namespace

TEST_CASE("A step of stage 3 on one rank copies nothing, and with poison it copies what it "
          "gathers") {
    CHECK(copies_of_step(false, 0) == 0);
    CHECK(copies_of_step(false, 2) == 0);
    CHECK(copies_of_step(true, 0) > 0);
}

TEST_CASE("Weights of stage 3 on one rank are the memory that its update writes") {
    auto ranks = Communicator::make_group(1);
    Stage engine(ranks[0], registration<float>(toy_specs()));
    std::vector<float const*> owned;
    engine.for_each_owned_slice([&](auto const& slice) { owned.push_back(slice.values.data()); });
    std::size_t found = 0;
    for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
        auto const weights = engine.acquire(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            for (float const* const address : owned) {
                found += address == weights[parameter].data() ? 1 : 0;
            }
        }
    }
    CHECK(found >= owned.size());
    CHECK(owned.size() >= 6);
}

TEST_CASE("The update of stage 3 on one rank waits until the model has read its weights") {
    for (std::size_t const kept_units : {0U, 1U}) {
        std::atomic<bool> has_read{false};
        host::ThreadedQueue compute;
        Gate gate;
        auto ranks = Communicator::make_group(1);
        host::InlineQueue communication;
        Stage engine(ranks[0], {{.name = "w", .elements = 3, .units = {0}}},
                     {.gather = {.keep_after_forward = kept_units},
                      .compute_queue = &compute,
                      .communication_queue = &communication});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        {
            auto const gradients = engine.gradients(0);
            compute.enqueue([first = gradients[0].data()] { *first = 1.0F; });
            engine.gradients_ready(0);
        }
        engine.end_micro_step();
        {
            auto const weights = engine.acquire(0);
            gate.hold(compute);
            compute.enqueue([&has_read] { has_read = true; });
        }
        ObservingBackend::had_read = false;
        ObservingBackend::has_read = &has_read;
        ObservingBackend::reader = &gate;
        (void)engine.step(0.1).report();
        ObservingBackend::reader = nullptr;
        ObservingBackend::has_read = nullptr;
        CHECK(ObservingBackend::had_read);
    }
}

TEST_CASE("With one micro-step per step a gradient is not written before the update has read the "
          "sum that lies there") {
    in_every_stage([]<int N>() {
        using Observed = ZeroStage<N, Communicator>;
        Gate gate;
        host::ThreadedQueue compute;
        host::ThreadedQueue communication;
        host::ThreadedQueue other;
        auto ranks = Communicator::make_group(1);
        Observed engine(ranks[0], {{.name = "w", .elements = 3}},
                        {.reduction = {.one_micro_step = true},
                         .compute_queue = &compute,
                         .communication_queue = &communication});
        auto const write = [&](host::Queue& writer) {
            engine.begin_step();
            engine.begin_micro_step();
            (void)engine.gradients(0, &writer)[0];
            engine.gradients_ready(0, &writer);
            engine.end_micro_step();
        };
        write(compute);
        communication.record().synchronise(); // the reduction is done, and only the update is not
        gate.hold(communication);
        (void)engine.step(0.1);
        ObservingBackend::pending = 0;
        write(other);
        CHECK(ObservingBackend::pending == 1);
        gate.open();
        (void)engine.step(0.1).report();
    });
}

TEST_CASE("With one micro-step per step sums in the type of the gradients give the bits of sums in "
          "float") {
    auto const trained = []<class Stage>(bool one_micro_step) {
        auto ranks = LoopbackCommunicator::make_group(1);
        Stage engine(ranks[0], registration<bfloat16>(toy_specs()),
                     {.gradient_clipping = 0.5F, .reduction = {.one_micro_step = one_micro_step}});
        for (std::uint64_t step = 0; step < 4; ++step) {
            (void)run_step(engine, 0, step).report();
        }
        return full_parameters(engine);
    };
    using Half = GradientReduction<void, void, bfloat16>;
    auto const expected = trained.operator()<ZeroStage<0, Parameters<bfloat16>>>(false);
    in_every_stage([&]<int N>() {
        CHECK(trained.template operator()<ZeroStage<N, Parameters<bfloat16>>>(true) == expected);
        CHECK(trained.template operator()<ZeroStage<N, Parameters<bfloat16>, Half>>(true)
              == expected);
    });
}

} // namespace zero::test::one_rank_test
