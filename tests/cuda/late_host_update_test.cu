#include "cuda/captured_steps.cuh"

#include "support/outcome.hpp"
#include "support/stages.hpp"

#include <zero/stage/update_on_host.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

// The host updates late: no bit changes, a fence that is left out is found, and engines wait.

namespace zero::test::late_host_update_test {

namespace {

using AllStates = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;
using Delayed =
    Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>, DelayedUpdate>;

/// Functions on the host are late by up to a millisecond, at random. May leave out a fence.
struct LateBackend : cuda::Backend {
    inline static std::atomic<int> left_out{-1};
    inline static std::atomic<std::size_t> calls{0};

    static void wait(Queue queue, Event const& event, Fence fence) {
        if (static_cast<int>(fence) != left_out) {
            cuda::Backend::wait(queue, event, fence);
        }
    }
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        auto const sleep = [](void* pause) {
            std::this_thread::sleep_for(
                std::chrono::microseconds(reinterpret_cast<std::uintptr_t>(pause)));
        };
        std::uintptr_t const random = ++calls * 2654435761U % 1000;
        cuda::Backend::run_on_host(queue, sleep, reinterpret_cast<void*>(random));
        cuda::Backend::run_on_host(queue, function, argument);
    }
};

template <int N, class States = AllStates>
using LateStage =
    ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, Loopback<LateBackend>, States>;

} // namespace

TEST_CASE("Updates of the host that are late change no bit in any stage", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<ZeroStage<2, Parameters<bfloat16>>>(2);
    for (int round = 0; round < 3; ++round) {
        in_every_stage([&]<int N>() {
            auto const compare = [&]<class Stage>(Stage*) {
                typename Stage::Options options;
                options.bucketer.bucket_bytes = 64;
                std::size_t const before = LateBackend::calls;
                CHECK(trained_on_device<Stage>(2, options) == expected);
                CHECK(LateBackend::calls - before >= 4 * 2 * 3); // three buckets a step at least
            };
            compare(static_cast<LateStage<N>*>(nullptr));
            compare(static_cast<LateStage<N, Delayed>*>(nullptr)); // no gradient reads parameters
        });
    }
}

TEST_CASE("An update of the host that does not wait for its gradients, or is not waited for, is "
          "found",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<ZeroStage<2, Parameters<bfloat16>>>(2);
    auto const find = [&]<class Stage>(Stage*, Fence fence) {
        LateBackend::left_out = static_cast<int>(fence);
        bool is_found = false;
        for (int round = 0; round < 20 && !is_found; ++round) {
            typename Stage::Options options;
            options.bucketer.bucket_bytes = 64;
            is_found = !(trained_on_device<Stage>(2, options) == expected);
        }
        LateBackend::left_out = -1;
        INFO(name_of(fence));
        CHECK(is_found);
    };
    for (Fence const fence : {Fence::chunk_read, Fence::chunk_updated}) {
        find(static_cast<LateStage<2>*>(nullptr), fence);
        find(static_cast<LateStage<2, Delayed>*>(nullptr), fence);
    }
}

TEST_CASE("An engine that ends while the host updates waits for it", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const ended = on_ranks<int, Loopback<LateBackend>>(2, [&](auto& communicator) {
        cuda::OwnedStream const stream;
        LateStage<2>::Options options;
        options.compute_queue = stream.get();
        options.bucketer.bucket_bytes = 64;
        LateStage<2> engine(communicator, registration<bfloat16>(toy_specs()), options);
        (void)run_device_step(engine, stream.get(), static_cast<std::uint64_t>(communicator.rank()),
                              0, 2, 0.01, 8);
        return 1;
    });
    CHECK(ended == std::vector{1, 1});
}

TEST_CASE("A rank that fails while the hosts update ends the others, and every engine ends",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const outcomes = on_ranks<Outcome, Loopback<LateBackend>>(3, [&](auto& communicator) {
        return outcome_of([&] {
            cuda::OwnedStream const stream;
            LateStage<2>::Options options;
            options.compute_queue = stream.get();
            options.bucketer.bucket_bytes = 64;
            LateStage<2> engine(communicator, registration<bfloat16>(toy_specs()), options);
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            for (std::uint64_t step = 0; step < 50; ++step) {
                if (rank == 1 && step == 2) {
                    communicator.abort("rank 1 has had enough");
                    throw std::runtime_error("enough");
                }
                (void)run_device_step(engine, stream.get(), rank, step, 2, 0.01, 8);
            }
        });
    });
    CHECK(outcomes[0].type == "Aborted");
    CHECK(outcomes[1].type == "other");
    CHECK(outcomes[2].type == "Aborted");
}

} // namespace zero::test::late_host_update_test
