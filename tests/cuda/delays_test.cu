#include "cuda/device_model.cuh"

#include "support/stages.hpp"

#include <atomic>

// Streams that pause at random: a missing fence shows in the bits.

namespace zero::test::delays_test {

namespace {

__global__ void spin(long long nanoseconds) {
#if defined(__CUDA_ARCH__) // the emulated device's streams pause by themselves
    long long begin = 0;
    long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
#else
    static_cast<void>(nanoseconds);
#endif
}

/// Adds pauses of up to 100 microseconds before and after the points that other streams wait for.
/// May omit a fence.
struct DelayingBackend : cuda::Backend {
    inline static std::atomic<int> left_out{-1};
    inline static thread_local std::uint64_t state = 1;

    static void pause(Queue queue) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        if (state >> 62U == 0) {
            cuda::detail::launch(queue, 1, 1, spin, static_cast<long long>(state >> 33U) % 100000);
        }
    }

    static Event record(Queue queue) {
        pause(queue);
        return cuda::Backend::record(queue);
    }
    static void wait(Queue queue, Event const& event, Fence fence) {
        if (static_cast<int>(fence) != left_out) {
            cuda::Backend::wait(queue, event, fence);
        }
        pause(queue);
    }
};

using Delayed = Loopback<DelayingBackend>;
template <int N>
using DelayedStage = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, Delayed>;

} // namespace

TEST_CASE("Streams that pause at random give the bits of the host in every stage", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<ZeroStage<2, Parameters<bfloat16>>>(3);
    for (int round = 0; round < 3; ++round) {
        in_every_stage([&]<int N>() { CHECK(trained_on_device<DelayedStage<N>>(3) == expected); });
    }
}

TEST_CASE(
    "Streams that pause at random reveal a reduction that does not wait for the backward pass",
    "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<ZeroStage<2, Parameters<bfloat16>>>(3);
    DelayingBackend::left_out = static_cast<int>(Fence::gradients_written);
    bool is_found = false;
    for (int round = 0; round < 20 && !is_found; ++round) {
        is_found = !(trained_on_device<DelayedStage<2>>(3) == expected);
    }
    DelayingBackend::left_out = -1;
    CHECK(is_found);
}

} // namespace zero::test::delays_test
