#include "cuda/device_model.cuh"

#include "support/stages.hpp"

#include <limits>

// Whole steps as a CUDA graph: eager, captured, replayed three times with one overflow among them, eager again.

namespace zero::test::graph_test {

namespace {

constexpr double learning_rates[] = {0.01, 0.03, 0.02, 0.005, 0.04};
constexpr bool overflows[] = {false, false, true, false, false};

template <class G>
__global__ void perhaps_overflow(G* gradient, int const* is_overflow) {
    if (*is_overflow != 0) {
        *gradient = from_float<G>(__uint_as_float(0x7f800000U));
    }
}

template <class Options>
void configure(Options& options) {
    options.gradient_clipping = 0.5F;
    options.loss_scaler.initial_scale = 1024.0F;
    options.loss_scaler.growth_interval = 2;
    options.loss_scaler.hysteresis = 1;
}

/// Always the same gradients, but for the overflow, and micro-steps.
template <class Engine>
void enqueue_step(Engine& engine, cudaStream_t stream, int const* is_overflow) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(2)) {
        auto const gradients = engine.gradients(1);
        cuda::kernels::launch(stream, 1, 1, perhaps_overflow<float16>, gradients[1].data(), is_overflow);
        run_device_micro_step(engine, stream, 0, 7, micro_step, 4);
    }
    (void)engine.step(1.0);
}

template <class Engine>
void set_rates(Engine& engine, int step) {
    engine.set_learning_rate(0, learning_rates[step]);
    engine.set_learning_rate(1, learning_rates[step] * 0.5);
}

struct Result {
    Trained trained;
    std::uint64_t step_count;
    float scale;
    bool last_was_skipped;
};

/// @param captures otherwise every step is eager
template <class Stage>
Result run(bool captures) {
    return on_ranks<Result, typename Stage::Communicator>(1, [&](auto& communicator) {
        cuda::OwnedStream const stream;
        typename Stage::Options options;
        configure(options);
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<float16>(toy_specs()), options);
        DeviceArray<int> const is_overflow(1);
        auto const set_overflow = [&](bool value) {
            cuda::check(cudaMemsetAsync(is_overflow.data(), value ? 1 : 0, sizeof(int), stream.get()), "cudaMemsetAsync");
        };
        auto const eager = [&](int step) {
            set_rates(engine, step);
            set_overflow(overflows[step]);
            enqueue_step(engine, stream.get(), is_overflow.data());
        };
        Result result{};
        eager(0);
        if (captures) {
            engine.join();
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t executable = nullptr;
            cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
            enqueue_step(engine, stream.get(), is_overflow.data());
            engine.join();
            cuda::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
            cuda::check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
            for (int step = 1; step < 4; ++step) {
                set_rates(engine, step);
                set_overflow(overflows[step]);
                engine.join();
                cuda::check(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch");
                engine.join();
                result.last_was_skipped = result.last_was_skipped || engine.last_report().is_skipped;
            }
            cuda::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
            cuda::check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
            cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        } else {
            for (int step = 1; step < 4; ++step) {
                eager(step);
                result.last_was_skipped = result.last_was_skipped || engine.last_report().is_skipped;
            }
        }
        eager(4);
        result.step_count = engine.step_count();
        result.scale = engine.loss_scaler_state().scale;
        collect(engine, toy_specs(), result.trained);
        return result;
    })[0];
}

} // namespace

TEST_CASE("A captured step that is replayed leaves the bits of eager ones, with new learning rates and an overflow", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, Loopback<cuda::Backend>>;
        Result const captured = run<Stage>(true);
        Result const eager = run<Stage>(false);
        CHECK(captured.trained == eager.trained);
        CHECK(captured.step_count == 4);
        CHECK(eager.step_count == 4);
        CHECK(captured.scale == eager.scale);
        CHECK(captured.last_was_skipped);
        CHECK(eager.last_was_skipped);
    });
}

TEST_CASE("Reading a report while a step is captured is refused", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = ZeroStage<2, Parameters<float16>, Loopback<cuda::Backend>>;
    auto const outcomes = on_ranks<Outcome, Loopback<cuda::Backend>>(1, [](auto& communicator) {
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<float16>(toy_specs()), options);
        (void)run_device_step(engine, stream.get(), 0, 0, 1, 0.1, 4); // loads the kernels, which older drivers do not do during a capture
        engine.join();
        cudaGraph_t graph = nullptr;
        cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
        }
        auto const ticket = engine.step(0.1);
        Outcome const outcome = outcome_of([&] { (void)ticket.report(); });
        engine.join();
        cuda::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
        cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        return outcome;
    });
    CHECK(outcomes[0].type == "OutOfOrder");
}

} // namespace zero::test::graph_test
