#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

// A trainer with one block of parameters and one of gradients: the gradients are reduced in place,
// so the engine holds neither leases nor an accumulation buffer.

namespace zero::test::gradient_block_test {

namespace {

constexpr int world = 2;

/// Sizes that are across the cuts: no parameter starts at a multiple of 128 elements but the first.
std::vector<std::size_t> const sizes{1000, 7, 513, 2048, 1};
constexpr std::size_t total = 3569;

struct Blocks {
    std::vector<float> values = std::vector<float>(total);
    std::vector<float> gradients = std::vector<float>(total, 99.0F);

    [[nodiscard]] std::vector<Parameter<float>> registration() {
        std::vector<Parameter<float>> parameters;
        std::size_t begin = 0;
        for (std::size_t const elements : sizes) {
            parameters.push_back({.name = "p" + std::to_string(parameters.size()),
                                  .data = values.data() + begin,
                                  .elements = elements,
                                  .gradient = gradients.data() + begin});
            begin += elements;
        }
        return parameters;
    }
};

/// The memory of one engine, as allocated and as planned.
struct Memory {
    std::vector<std::size_t> kinds;
    MemoryRow gradients;
    std::size_t planned = 0;
    std::size_t allocated = 0;
};

float gradient_of(int rank, std::size_t step, std::size_t element) {
    return noise(static_cast<std::uint64_t>(3 + rank), step, element);
}

/// Trains with a gradient block, or with leases of the engine; returns the values of rank 0.
template <int N>
std::vector<float> trained(bool has_block, double learning_rate = 0.01) {
    return on_ranks<std::vector<float>>(world, [&](LoopbackCommunicator& communicator) {
        Blocks blocks;
        for (std::size_t i = 0; i < total; ++i) {
            blocks.values[i] = noise(1, 0, i);
        }
        std::vector<float> separate(total);
        auto parameters = blocks.registration();
        for (auto& parameter : parameters) {
            if (!has_block) {
                parameter.gradient = nullptr;
            }
        }
        ZeroStage<N> engine(communicator, parameters,
                            {.storage = Storage::adopted,
                             .adopted_block = blocks.values,
                             .bucketer = {.bucket_bytes = 2048},
                             .reduction = {.schedule = ReductionSchedule::boundary}});
        for (std::size_t step = 0; step < 4; ++step) {
            engine.begin_step();
            engine.begin_micro_step(step % 2 == 0 ? MicroStep::last : MicroStep::more);
            if (has_block) {
                auto const gradients = engine.gradients(0);
                (void)gradients[0];
            }
            std::size_t begin = 0;
            for (std::size_t index = 0; index < sizes.size(); ++index) {
                float* const out = (has_block ? blocks.gradients : separate).data() + begin;
                for (std::size_t i = 0; i < sizes[index]; ++i) {
                    out[i] = gradient_of(communicator.rank(), step, begin + i);
                }
                if (!has_block) {
                    (void)engine.hand_over(0, index, {out, sizes[index]});
                }
                begin += sizes[index];
            }
            engine.gradients_ready(0);
            engine.end_micro_step();
            engine.step(learning_rate);
            // At once, as a trainer does; the update must have read them.
            std::fill(blocks.gradients.begin(), blocks.gradients.end(), 1e30F);
        }
        (void)engine.acquire(0);
        (void)engine.step_count();
        return blocks.values;
    })[0];
}

} // namespace

TEMPLATE_TEST_CASE_SIG("Gradients that are reduced in place give the bits of leased ones", "",
                       ((int N), N), 0, 1, 2) {
    auto const in_place = trained<N>(true);
    CHECK(in_place == trained<N>(false));
    CHECK(in_place == trained<1>(true));
    CHECK(in_place != trained<N>(true, 0.011)); // the comparison can fail
}

TEMPLATE_TEST_CASE_SIG(
    "With a gradient block the engine holds optimizer states and a staged bucket", "", ((int N), N),
    0, 1) {
    // Of 3,569 elements 27 times 2 * 64 are reduced in place. The last 112 of 'p3' and 'p4' go
    // through the staged bucket, padded to 128 + 64 and rounded up to 256. AdamW has two states; in
    // stage 1 each rank holds half of 3,456 + 256 elements.
    auto const seen = on_ranks<Memory>(world, [](LoopbackCommunicator& communicator) {
        Blocks blocks;
        HostMemoryResource memory;
        ZeroStage<N> engine(
            communicator, blocks.registration(),
            {.storage = Storage::adopted, .adopted_block = blocks.values, .memory = &memory});
        auto const plan = engine.memory_plan();
        return Memory{{memory.allocated_bytes(BufferKind::gradients),
                       memory.allocated_bytes(BufferKind::gradient_leases),
                       memory.allocated_bytes(BufferKind::wire),
                       memory.allocated_bytes(BufferKind::optimizer_state)},
                      plan[BufferKind::gradients],
                      plan.engine_bytes(),
                      memory.allocated_bytes()};
    });
    for (auto const& rank : seen) {
        CHECK((rank.kinds
               == std::vector<std::size_t>{0, 256 * 4, 0, (N == 0 ? 3712U : 1856U) * 2U * 4U}));
        CHECK((rank.gradients == MemoryRow{total * 4, 0, true}));
        CHECK(rank.planned == rank.allocated);
    }
}

TEST_CASE("Gradients form a block only if each of them lies where its parameter does") {
    auto const are_block = [](std::size_t moved, bool is_null) -> bool {
        return on_ranks<int>(1,
                             [&](LoopbackCommunicator& communicator) {
                                 Blocks blocks;
                                 std::vector<float> elsewhere(total);
                                 auto parameters = blocks.registration();
                                 if (moved < parameters.size()) {
                                     parameters[moved].gradient =
                                         is_null ? nullptr : elsewhere.data();
                                 }
                                 ZeroStage<1> engine(
                                     communicator, parameters,
                                     {.storage = Storage::adopted, .adopted_block = blocks.values});
                                 bool const is_first =
                                     engine.layout().parameter(0).gradient == GradientMemory::block;
                                 for (std::size_t index = 1; index < sizes.size(); ++index) {
                                     CHECK((engine.layout().parameter(index).gradient
                                            == GradientMemory::block)
                                           == is_first);
                                 }
                                 return is_first ? 1 : 0;
                             })[0]
               != 0;
    };
    CHECK(are_block(sizes.size(), false)); // none is moved
    for (std::size_t moved = 0; moved < sizes.size(); ++moved) {
        CAPTURE(moved);
        CHECK_FALSE(are_block(moved, false));
        CHECK_FALSE(are_block(moved, true));
    }
}

TEST_CASE("A rank whose gradients form no block is refused, and the message says what differs") {
    auto const outcome = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        Blocks blocks;
        std::vector<float> elsewhere(total);
        auto parameters = blocks.registration();
        if (communicator.rank() == 1) {
            parameters[2].gradient = elsewhere.data();
        }
        ZeroStage<1> const engine(communicator, parameters,
                                  {.storage = Storage::adopted, .adopted_block = blocks.values});
    });
    for (auto const& rank : outcome.ranks) {
        CHECK(rank.message
              == "zero: the ranks registered different models; parameter number 0 is 'p0' (1000 "
                 "elements of float32, units 0, group 0, gradient in one block, trainable) on rank "
                 "0 and 'p0' (1000 elements of float32, units 0, group 0, trainable) on rank 1; "
                 "register the same parameters in the same order on every rank.");
    }
}

TEST_CASE("Buckets of an adopted block are cut at the capacity of the bucketer") {
    auto const largest = on_ranks<std::size_t>(world, [](LoopbackCommunicator& communicator) {
        Blocks blocks;
        ZeroStage<2> engine(communicator, blocks.registration(),
                            {.storage = Storage::adopted,
                             .adopted_block = blocks.values,
                             .bucketer = {.bucket_bytes = 1024}});
        std::size_t elements = 0;
        for (std::size_t bucket = 0; bucket < engine.layout().buckets(); ++bucket) {
            elements = std::max(elements, engine.layout().elements(bucket));
        }
        return elements;
    });
    CHECK((largest == std::vector<std::size_t>{256, 256}));
}

TEST_CASE("A second micro-step is refused where nothing accumulates, and allowed where it does") {
    auto const outcome = [](ReductionSchedule schedule) {
        return on_ranks<Outcome>(world, [&](LoopbackCommunicator& communicator) {
            Blocks blocks;
            ZeroStage<1> engine(communicator, blocks.registration(),
                                {.storage = Storage::adopted,
                                 .adopted_block = blocks.values,
                                 .reduction = {.schedule = schedule}});
            return outcome_of([&] {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    (void)engine.gradients(0)[0];
                    engine.gradients_ready(0);
                }
                engine.step(0.01);
            });
        })[0];
    };
    CHECK(outcome(ReductionSchedule::every_micro_step).type == "returned");
    auto const refused = outcome(ReductionSchedule::boundary);
    CHECK(refused.type == "OutOfOrder");
    CHECK_THAT(refused.message, contains_text("reduced in place")
                                    && contains_text("ReductionSchedule::every_micro_step"));
}

TEST_CASE("Separate caller-owned gradients may be overwritten after end_micro_step") {
    auto const train = [](bool overwrites) {
        return on_ranks<std::vector<float>>(world, [&](LoopbackCommunicator& communicator) {
            host::ThreadedQueue compute;
            host::ThreadedQueue communication;
            std::vector<float> first(300);
            std::vector<float> second(500);
            ZeroStage<2> engine(communicator,
                                std::vector<Parameter<float>>{
                                    {.name = "a", .elements = 300, .gradient = first.data()},
                                    {.name = "b", .elements = 500, .gradient = second.data()}},
                                {.compute_queue = &compute, .communication_queue = &communication});
            Gate gate;
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            (void)engine.gradients(0)[0];
            compute.enqueue([&] {
                std::fill(first.begin(), first.end(), 2.0F);
                std::fill(second.begin(), second.end(), 3.0F);
            });
            gate.hold(communication); // the reduction reads long after the overwriting is enqueued
            engine.gradients_ready(0);
            engine.end_micro_step();
            if (overwrites) {
                compute.enqueue([&] {
                    std::fill(first.begin(), first.end(), -7.0F);
                    std::fill(second.begin(), second.end(), -7.0F);
                });
            }
            gate.open();
            engine.step(0.5);
            std::vector<float> values;
            engine.for_each_full_parameter([&](std::size_t, std::span<float const> full) {
                values.insert(values.end(), full.begin(), full.end());
            });
            return values;
        })[0];
    };
    CHECK(train(true) == train(false));
}

} // namespace zero::test::gradient_block_test
