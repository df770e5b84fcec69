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

// Stage 3 on one rank reads parameters in the shard, which is the whole model.

namespace zero::test::one_rank_test {

namespace {

/// Counts copies, and notes whether the model had read its weights when the update ran.
struct ObservingBackend : HostBackend {
    inline static std::size_t copies = 0;
    inline static Gate* reader = nullptr; ///< opened when the engine waits for the last readers
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
        engine.begin_micro_step(true);
        {
            auto const gradients = engine.gradients(0);
            gradients[0][0] = 1.0F;
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

} // namespace zero::test::one_rank_test
