#pragma once

#include "device_array.cuh"

#include <zero/stage/micro_steps.hpp>
#include <zero/stage/parameter.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

// A training on a device that computes nothing: its gradients are random.
namespace zero::bench {

/// Returns parameters in units: the embeddings, one unit per block, and the last norm.
template <class T, class G>
std::vector<Parameter<T, G>> parameters_of(std::vector<std::size_t> const& sizes) {
    constexpr std::size_t in_embeddings = 2;
    constexpr std::size_t in_block = 12;
    std::vector<Parameter<T, G>> parameters;
    for (std::size_t const elements : sizes) {
        std::size_t const index = parameters.size();
        std::size_t const unit = index < in_embeddings ? 0 : 1 + (index - in_embeddings) / in_block;
        parameters.push_back(
            {.name = std::to_string(index), .elements = elements, .units = {unit}});
    }
    return parameters;
}

/// The time that the host spends in calls.
class HostTime {
public:
    template <class Call>
    void add(Call const& call) {
        auto const start = std::chrono::steady_clock::now();
        call();
        _sum += std::chrono::steady_clock::now() - start;
        ++_calls;
    }
    [[nodiscard]] double microseconds() const {
        return _sum.count() * 1e6 / static_cast<double>(_calls);
    }

private:
    std::chrono::duration<double> _sum{};
    std::size_t _calls = 0;
};

/// An engine, and steps of one micro-step.
template <class Stage>
class Training {
public:
    using G = typename Stage::GradientType;

    /// Trains three steps, which load kernels and write to all leases: later steps find their
    /// memory as it is.
    /// @param options with the stream of the steps
    Training(typename Stage::Communicator& communicator, std::vector<std::size_t> const& sizes,
             typename Stage::Options const& options)
        : _stream(options.compute_queue),
          _engine(communicator, parameters_of<typename Stage::ParameterType, G>(sizes), options) {
        for (int first_step = 0; first_step < 3; ++first_step) {
            backward(true);
            step();
        }
        in_step = {};
        in_backward = {};
    }

    void backward(bool writes = false) {
        _inputs.clear();
        _engine.begin_step();
        _engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = _engine.layout().units(); unit-- > 0;) {
            auto const gradients = _engine.gradients(unit, {}, false);
            for (std::size_t const parameter : _engine.layout().unit_parameters(unit)) {
                // Only memory whose address was taken counts as written.
                std::span<G> const gradient = gradients[parameter];
                _inputs.push_back({gradient.data(), gradient.size_bytes()});
                if (writes) { // after the commands that used this lease before
                    cuda::detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
                    fill_normal(gradient.data(), gradient.size(), gradient_deviation);
                }
            }
            in_backward.add([&] { _engine.gradients_ready(unit); });
        }
        _engine.end_micro_step();
    }

    void step() {
        in_step.add([&] { (void)_engine.step(1e-4); });
        if (!_engine.is_update_pending()) {
            _engine.join();
        }
    }

    [[nodiscard]] Stage& engine() { return _engine; }
    /// The gradients of the last backward pass.
    [[nodiscard]] std::vector<TimedInput> const& inputs() const { return _inputs; }

    HostTime in_step;
    HostTime in_backward;

private:
    cudaStream_t _stream;
    Stage _engine;
    std::vector<TimedInput> _inputs;
};

} // namespace zero::bench
