#pragma once

#include "cuda/device_model.cuh"

#include <zero/cuda/capture_lock.hpp>
#include <zero/stage/training_state.hpp>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <vector>

// Five steps: one eager, three that are eager or replays of a captured graph, with one overflow
// among them, and one eager again.

namespace zero::test {

/// A graph that is captured on a stream and launched there.
class CapturedGraph {
public:
    /// Captures the work that `enqueue` enqueues on `stream`, and on streams that branch off it and
    /// join again.
    template <class Enqueue>
    void capture(cudaStream_t stream, Enqueue const& enqueue) {
        cuda::detail::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                            "cudaStreamBeginCapture");
        try {
            enqueue();
        } catch (...) {
            cuda::CaptureLock const lock(stream); // other ranks may still enqueue
            cuda::detail::ignore(cudaStreamEndCapture(stream, &_graph));
            (void)cudaGetLastError();
            throw;
        }
        cuda::detail::check(cudaStreamEndCapture(stream, &_graph), "cudaStreamEndCapture");
        cuda::detail::check(cudaGraphInstantiate(&_executable, _graph, 0), "cudaGraphInstantiate");
    }

    void launch(cudaStream_t stream) const {
        cuda::detail::check(cudaGraphLaunch(_executable, stream), "cudaGraphLaunch");
    }

    CapturedGraph() = default;
    CapturedGraph(CapturedGraph&&) = delete;
    CapturedGraph& operator=(CapturedGraph&&) = delete;
    ~CapturedGraph() {
        if (_executable != nullptr) {
            cuda::detail::ignore(cudaGraphExecDestroy(_executable));
        }
        if (_graph != nullptr) {
            cuda::detail::ignore(cudaGraphDestroy(_graph));
        }
    }

private:
    cudaGraph_t _graph = nullptr;
    cudaGraphExec_t _executable = nullptr;
};

/// Ranks that are captured into one graph, each by its own thread: the streams of the others branch
/// off the stream of rank 0 and join it again.
class GroupGraph {
public:
    explicit GroupGraph(int world) : _meeting(world), _streams(static_cast<std::size_t>(world)) {}

    /// All ranks call it. @param enqueue must end with the stream waiting for all work of this rank
    template <class Enqueue>
    void capture(std::size_t rank, cudaStream_t stream, Enqueue const& enqueue) {
        if (rank != 0) {
            _meeting.arrive_and_wait(); // the capture has begun
            enqueue_or_leave([&] {
                _begin.make_wait(stream);
                enqueue();
                _streams[rank] = cuda::Event::record(stream);
            });
            _meeting.arrive_and_wait();
        } else {
            _graph.capture(stream, [&] {
                _begin = cuda::Event::record(stream);
                _meeting.arrive_and_wait();
                enqueue_or_leave(enqueue);
                _meeting.arrive_and_wait();
                wait_for_others(stream);
            });
            _begin = {};
        }
        _meeting.arrive_and_wait();
    }

    /// Launches the graph after the earlier work and before the later work of all ranks' streams.
    /// All ranks call it.
    void launch(std::size_t rank, cudaStream_t stream) {
        _streams[rank] = cuda::Event::record(stream);
        _meeting.arrive_and_wait();
        if (rank == 0) {
            wait_for_others(stream);
            _graph.launch(stream);
            _end = cuda::Event::record(stream);
        }
        _meeting.arrive_and_wait();
        if (rank != 0) {
            _end.make_wait(stream);
        }
        _meeting.arrive_and_wait();
    }

private:
    /// Calls `enqueue`. If it throws, this rank leaves the meeting, so that no peer waits for it.
    template <class Enqueue>
    void enqueue_or_leave(Enqueue const& enqueue) {
        try {
            enqueue();
        } catch (...) {
            _meeting.arrive_and_drop();
            throw;
        }
    }

    void wait_for_others(cudaStream_t stream) {
        for (std::size_t other = 1; other < _streams.size(); ++other) {
            _streams[other].make_wait(stream);
        }
    }

    std::barrier<> _meeting;
    std::vector<cuda::Event> _streams; ///< the position of each rank's stream
    cuda::Event _begin;
    cuda::Event _end;
    CapturedGraph _graph;
};

struct CapturedResult {
    Trained trained;
    std::uint64_t step_count = 0;
    std::uint64_t updates = 0; ///< of parameter 3
    float scale = 0.0F;
    bool was_skipped = false; ///< whether one of the three steps in the middle was skipped

    friend bool operator==(CapturedResult const&, CapturedResult const&) = default;
};

template <class G>
__global__ void perhaps_overflow(G* gradient, int const* is_overflow) {
    if (*is_overflow != 0) {
        *gradient = from_float<G>(__uint_as_float(0x7f800000U));
    }
}

/// Runs the five steps of one rank.
/// @param graph null: every step is eager
/// @param leaves the three steps in the middle have no gradient of parameter 3, which they leave
/// @param one_micro_step every step has one micro-step instead of two, and the options say so
template <class Stage>
CapturedResult run_captured_steps(typename Stage::Communicator& communicator, GroupGraph* graph,
                                  std::size_t rank_in_graph, bool leaves = false,
                                  bool one_micro_step = false) {
    constexpr double learning_rates[] = {0.01, 0.03, 0.02, 0.005, 0.04};
    constexpr bool overflows[] = {false, false, true, false, false};
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    cuda::OwnedStream const stream;
    typename Stage::Options options;
    options.gradient_clipping = 0.5F;
    options.loss_scaler.initial_scale = 1024.0F;
    options.loss_scaler.growth_interval = 2;
    options.loss_scaler.hysteresis = 1;
    options.reduction.one_micro_step = one_micro_step;
    if constexpr (detail::config_of_t<Stage>::adds_in_tree) {
        options.reduction.micro_batches =
            (one_micro_step ? 1U : 2U) * static_cast<std::size_t>(communicator.size());
    }
    options.compute_queue = stream.get();
    options.unused_parameters = leaves ? UnusedParameters::leave : UnusedParameters::zero;
    DeviceArray<int> const is_overflow(1); // freed when the engine has waited for its readers
    Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()), options);

    auto const prepare = [&](int step) {
        engine.set_learning_rate(0, learning_rates[step]);
        engine.set_learning_rate(1, learning_rates[step] * 0.5);
        bool const overflows_here =
            overflows[step] && rank + 1 == static_cast<std::uint64_t>(communicator.size());
        cuda::detail::check(
            cudaMemsetAsync(is_overflow.data(), overflows_here ? 1 : 0, sizeof(int), stream.get()),
            "cudaMemsetAsync");
    };
    auto const enqueue_step = [&](bool is_left) { // always the same gradients, but for overflows
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(one_micro_step ? 1 : 2)) {
            run_device_micro_step(engine, stream.get(), rank, 7, micro_step, 4, [&](auto gradient) {
                cuda::detail::launch(stream.get(), 1, 1,
                                     perhaps_overflow<typename Stage::GradientType>,
                                     gradient.data(), is_overflow.data());
            });
            if (is_left) {
                engine.note_unused(2, 3);
            }
        }
        (void)engine.step(1.0);
    };

    CapturedResult result;
    prepare(0);
    enqueue_step(false);
    if (graph != nullptr) {
        engine.join();
        graph->capture(rank_in_graph, stream.get(), [&] {
            enqueue_step(leaves);
            engine.join();
        });
    }
    for (int step = 1; step < 4; ++step) {
        prepare(step);
        if (graph != nullptr) {
            engine.join();
            graph->launch(rank_in_graph, stream.get());
            engine.join();
        } else {
            enqueue_step(leaves);
        }
        result.was_skipped = result.was_skipped || engine.last_report().is_skipped;
    }
    prepare(4);
    enqueue_step(false);
    result.step_count = engine.step_count();
    result.updates = TrainingState(engine).updates(3);
    result.scale = engine.loss_scaler_state().scale;
    collect(engine, toy_specs(), result.trained);
    cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    return result;
}

} // namespace zero::test
