#include "captured_steps.cuh"

#include "support/stages.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/ops/lamb.hpp>
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
        using Stage =
            ZeroStage<N, Parameters<float16>, SizeCappedBucketer, Loopback<cuda::Backend>>;
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

__global__ void set_value(float* to, float value) {
    *to = value;
}

struct Limited {
    std::vector<bool> skipped{};
    std::vector<float> limits{};
    std::uint32_t too_large = 0;
    std::uint64_t step_count = 0;
    std::vector<std::vector<float>> parameters{};
    friend bool operator==(Limited const&, Limited const&) = default;
};

/// Takes the norms of `sizes`, those from the third on in a graph, whose state of `skip_above_norm`
/// is on the device. @param captures false: every step is eager
template <class Stage>
std::vector<Limited> run_limited(int world, bool captures, NormLimit const& limit) {
    std::vector<float> const sizes{1.0F, 2.0F, 30.0F, 2.0F, 50.0F, 60.0F, 1.0F};
    GroupGraph graph(world);
    return on_ranks<Limited, typename Stage::Communicator>(world, [&](auto& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        cuda::OwnedStream const stream;
        DeviceArray<float> const size(1); // of this step
        typename Stage::Options options;
        options.skip_above_norm = limit;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<float>(toy_specs()), options);
        auto const enqueue_step = [&] {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    auto const gradients = engine.gradients(unit);
                    for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                        if (auto const gradient = gradients[parameter]; !gradient.empty()) {
                            cuda::detail::launch(stream.get(), 4, 128, add_toy_gradient<float>,
                                                 gradient.data(), gradient.size(), 2 + rank,
                                                 parameter, micro_step, size.data(), 4);
                        }
                    }
                    engine.gradients_ready(unit);
                }
            }
            (void)engine.step(0.01);
        };
        Limited seen;
        for (std::size_t step = 0; step < sizes.size(); ++step) {
            cuda::detail::launch(stream.get(), 1, 1, set_value, size.data(), sizes[step]);
            if (captures && step == 2) {
                engine.join();
                graph.capture(rank, stream.get(), [&] {
                    enqueue_step();
                    engine.join();
                });
            }
            if (captures && step >= 2) {
                engine.join();
                graph.launch(rank, stream.get());
                engine.join();
            } else {
                enqueue_step();
            }
            StepReport const report = engine.last_report();
            seen.skipped.push_back(report.is_skipped);
            seen.limits.push_back(report.norm_limit);
            seen.too_large = report.too_large;
        }
        seen.step_count = engine.step_count();
        Trained trained;
        collect(engine, toy_specs(), trained);
        seen.parameters = trained.parameters;
        cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        return seen;
    });
}

} // namespace

TEST_CASE("A replayed step is skipped for its norm as an eager one", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, SizeCappedBucketer, Loopback<cuda::Backend>>;
        for (int const world : {1, 2}) {
            CAPTURE(N, world);
            NormLimit const limit{.factor = 3.0F, .window = 2};
            auto const captured = run_limited<Stage>(world, true, limit);
            CHECK(captured == run_limited<Stage>(world, false, limit));
            CHECK_FALSE(captured == run_limited<Stage>(world, true, {}));
            for (Limited const& rank : captured) {
                CHECK(rank.skipped
                      == std::vector<bool>{false, false, true, false, true, true, false});
                CHECK(rank.too_large == 3);
                CHECK(rank.step_count == 4);
                CHECK(rank.limits[2] == rank.limits[3]); // a skipped step does not move it
                CHECK(rank.limits[4] > rank.limits[3]);
            }
        }
    });
}

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
        using Stage = ZeroStage<N, Parameters<float16>, SizeCappedBucketer,
                                GradientReduction<void, void, float16>, Loopback<cuda::Backend>>;
        for (int const world : {1, 2}) {
            CAPTURE(N, world);
            CHECK(run<Stage>(world, true, false, true) == run<Stage>(world, false, false, true));
        }
    });
}

TEST_CASE("A replayed step of an optimizer of whole parameters gives the bits of eager steps",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, SizeCappedBucketer, Lamb,
                                BalancedPartitioner, Loopback<cuda::Backend>>;
        for (int const world : {1, 2}) {
            CAPTURE(N, world);
            CHECK(run<Stage>(world, true) == run<Stage>(world, false));
        }
    });
}

TEST_CASE("A replayed step leaves the parameter that its capture had no gradient of", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage =
            ZeroStage<N, Parameters<float16>, SizeCappedBucketer, Loopback<cuda::Backend>>;
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
