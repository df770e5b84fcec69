#include "cuda/captured_steps.cuh"

#include "support/stages.hpp"

#include <zero/cuda/capture_lock.hpp>

#include <mutex>
#include <thread>

// Commands of several threads that are captured into one graph come one at a time.

namespace zero::test::capture_lock_test {

namespace {

/// Returns whether no thread holds the lock, by taking it in a further thread.
bool is_unlocked() {
    bool is_free = false;
    std::thread([&] {
        std::unique_lock const lock(cuda::detail::capture_mutex(), std::try_to_lock);
        is_free = lock.owns_lock();
    }).join();
    return is_free;
}

/// Asks at each change of a graph while an object lives.
class Watch {
public:
    Watch() {
        emulated::guarded_calls = 0;
        emulated::unguarded_calls = 0;
        emulated::is_unguarded = &is_unlocked;
    }
    ~Watch() { emulated::is_unguarded = nullptr; }
};

} // namespace

TEST_CASE("Every command of a step that is captured is enqueued under the lock", "[cuda]") {
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, Loopback<cuda::Backend>>;
        CAPTURE(N);
        Watch const watch;
        GroupGraph graph(1);
        (void)on_ranks<CapturedResult, typename Stage::Communicator>(1, [&](auto& communicator) {
            return run_captured_steps<Stage>(communicator, &graph, 0);
        });
        CHECK(emulated::unguarded_calls == 0);
        CHECK(emulated::guarded_calls > 20);
    });
}

TEST_CASE("Copies between a bucket and tensors are captured under the lock", "[cuda]") {
    cuda::OwnedStream const stream;
    DeviceArray<float> const tensor(std::vector<float>{1.0F, 2.0F, 3.0F});
    DeviceArray<float> const bucket(3);
    cuda::SliceTable<CopySlice<float>> const table(stream.get(), cuda::default_memory(),
                                                   {{tensor.data(), 0, 3}});
    Watch const watch;
    CapturedGraph graph;
    graph.capture(stream.get(),
                  [&] { cuda::Backend::copy_to_bucket(stream.get(), table.all(), bucket.data()); });
    CHECK(emulated::unguarded_calls == 0);
    CHECK(emulated::guarded_calls == 1);
}

TEST_CASE("A step that is not captured takes no lock, even while another thread holds it",
          "[cuda]") {
    using Stage = ZeroStage<3, Parameters<bfloat16>, Loopback<cuda::Backend>>;
    std::lock_guard const held(cuda::detail::capture_mutex()); // a step would wait for it
    Trained const expected = trained<ZeroStage<3, Parameters<bfloat16>>>(2);
    CHECK(trained_on_device<Stage>(2) == expected);
    CHECK_FALSE(is_unlocked());
}

TEST_CASE("A program's own commands take the lock during a capture only", "[cuda]") {
    cuda::OwnedStream const stream;
    CHECK_FALSE(cuda::CaptureLock(stream.get()).is_held());
    CapturedGraph graph;
    graph.capture(stream.get(), [&] {
        {
            cuda::CaptureLock const lock(stream.get());
            CHECK(lock.is_held());
            CHECK_FALSE(is_unlocked());
        }
        CHECK(is_unlocked());
    });
    CHECK_FALSE(cuda::CaptureLock(stream.get()).is_held());
}

} // namespace zero::test::capture_lock_test
