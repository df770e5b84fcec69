#include "captured_steps.cuh"

#include "support/stages.hpp"

#include <zero/stage/detail/common/drain.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

// Whole steps as a CUDA graph.

namespace zero::test::graph_test {

namespace {

/// @param captures false: every step is eager
template <class Stage>
std::vector<CapturedResult> run(int world, bool captures, bool leaves = false,
                                bool one_micro_step = false) {
    GroupGraph graph(world);
    return on_ranks<CapturedResult, typename Stage::Communicator>(world, [&](auto& communicator) {
        return run_captured_steps<Stage>(communicator, captures ? &graph : nullptr,
                                         static_cast<std::size_t>(communicator.rank()), leaves,
                                         one_micro_step);
    });
}

void check_worlds(std::vector<int> const& worlds) {
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, Loopback<cuda::Backend>>;
        for (int const world : worlds) {
            CAPTURE(N, world);
            auto const captured = run<Stage>(world, true);
            CHECK(captured == run<Stage>(world, false));
            for (CapturedResult const& rank : captured) {
                CHECK(rank.step_count == 4);
                CHECK(rank.was_skipped);
            }
        }
    });
}

/// Records whether memory was freed before `is_done`.
class WatchedMemory final : public MemoryResource {
public:
    explicit WatchedMemory(std::atomic<bool> const& is_done) : _is_done(is_done) {}
    void* allocate(std::size_t bytes, BufferKind kind) override {
        return cuda::default_memory().allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        was_early = was_early || (is_watched && !_is_done);
        cuda::default_memory().deallocate(memory, bytes, kind);
    }

    bool is_watched = false;
    bool was_early = false;

private:
    std::atomic<bool> const& _is_done;
};

} // namespace

TEST_CASE("A replayed step gives the bits of eager steps, with new learning rates and an overflow",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_worlds({1});
}

TEST_CASE("A replayed step of several ranks on a device, each captured by its own thread, gives "
          "the bits of eager steps",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_worlds({2, 3});
}

TEST_CASE("A replayed step whose sums lie where the gradients are written gives the bits of eager "
          "steps",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, GradientReduction<void, void, float16>,
                                Loopback<cuda::Backend>>;
        for (int const world : {1, 2}) {
            CAPTURE(N, world);
            CHECK(run<Stage>(world, true, false, true) == run<Stage>(world, false, false, true));
        }
    });
}

TEST_CASE("A replayed step leaves the parameter that its capture had no gradient of", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, Loopback<cuda::Backend>>;
        auto const captured = run<Stage>(2, true, true);
        CHECK(captured == run<Stage>(2, false, true));
        CHECK_FALSE(captured == run<Stage>(2, true));
        for (CapturedResult const& rank : captured) {
            CHECK(rank.step_count == 4);
            CHECK(rank.updates == 2);
        }
    });
}

TEST_CASE("Queries for a report, its event or norms during a capture are refused and do not "
          "invalidate the capture",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    struct Seen {
        Outcome of_report;
        Outcome of_query;
        Outcome of_norms;
        bool can_go_on = false;
    };
    using Stage = ZeroStage<2, Parameters<bfloat16>, Loopback<cuda::Backend>>;
    auto const ranks = on_ranks<Seen, Stage::Communicator>(1, [](auto& communicator) {
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        (void)run_device_step(
            engine, stream.get(), 0, 0, 1, 0.1,
            4); // loads the kernels, which older drivers do not do during a capture
        engine.join();
        Seen seen;
        CapturedGraph graph;
        graph.capture(stream.get(), [&] {
            auto const ticket = run_device_step(engine, stream.get(), 0, 1, 1, 0.1, 4);
            seen.of_report = outcome_of([&] { (void)ticket.report(); });
            seen.of_query = outcome_of([&] { (void)ticket.done().is_complete(); });
            zero::detail::drain<cuda::Backend>(stream.get());
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {}
            seen.of_norms = outcome_of([&] { (void)engine.gradient_norms(); });
            (void)engine.step(0.1);
            engine.join();
        });
        seen.can_go_on =
            !run_device_step(engine, stream.get(), 0, 2, 1, 0.1, 4).report().is_skipped;
        return seen;
    });
    CHECK(ranks[0].of_report.type == "OutOfOrder");
    CHECK(ranks[0].of_query.type == "OutOfOrder");
    CHECK(ranks[0].of_norms.type == "OutOfOrder");
    CHECK(ranks[0].can_go_on);
}

TEST_CASE("An engine that is destroyed while a step is captured waits for earlier work", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = ZeroStage<2, Parameters<bfloat16>, Loopback<cuda::Backend>>;
    auto const was_early = on_ranks<int, Stage::Communicator>(1, [](auto& communicator) {
        std::atomic<bool> is_done{false};
        WatchedMemory memory(is_done);
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        options.memory = &memory;
        try {
            Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
            memory.is_watched = true;
            for (std::uint64_t step = 0; step < 8;
                 ++step) { // enough work to stay in progress for a while
                (void)run_device_step(engine, stream.get(), 0, step, 1, 0.1, 4);
            }
            cuda::detail::check(
                cudaLaunchHostFunc(
                    stream.get(), [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; },
                    &is_done),
                "cudaLaunchHostFunc");
            engine.join();
            cuda::detail::check(
                cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                "cudaStreamBeginCapture");
            engine.begin_step();
            throw std::runtime_error("the model fails");
        } catch (std::runtime_error const&) {
            cudaGraph_t captured = nullptr;
            cuda::detail::ignore(cudaStreamEndCapture(stream.get(), &captured));
            cuda::detail::ignore(cudaGraphDestroy(captured));
            (void)cudaGetLastError();
        }
        return memory.was_early ? 1 : 0;
    });
    CHECK(was_early[0] == 0);
}

} // namespace zero::test::graph_test
