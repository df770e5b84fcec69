#pragma once

#include "cuda/device_model.cuh"
#include "stage/tree_model.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

// The model of stage/tree_model.hpp on a stream.

namespace zero::test::tree {

/// Does the same as `seen`, on a device.
template <class Engine>
Seen seen_on_device(Engine& engine, StepReport const& report, Job const& job) {
    Seen result;
    result.trained.resize(job.specs);
    engine.for_each_full_parameter([&](std::size_t, auto parameter) {
        result.trained.parameters.emplace_back();
        for (auto const value : on_host(parameter)) {
            result.trained.parameters.back().push_back(to_float(value));
        }
    });
    engine.for_each_owned_slice([&](auto const& device) {
        HostCopy const copy(device);
        result.trained.add(copy.slice);
    });
    result.norm = std::bit_cast<std::uint64_t>(report.gradient_norm);
    result.steps = engine.step_count();
    result.scale = std::bit_cast<std::uint32_t>(engine.loss_scaler_state().scale);
    return result;
}

/// Does the same as `run_step`, with leases.
template <class Engine>
StepReport run_step_on_device(Engine& engine, cudaStream_t stream, Job const& job,
                              std::uint64_t step) {
    using G = typename Engine::GradientType;
    std::vector<DeviceArray<G>> kept; // commands on the stream read them
    engine.begin_step();
    float const scale = on_host(std::span<float const>(engine.loss_scale().data(), 1)).front();
    for (auto const micro_step : engine.micro_steps()) {
        std::size_t const number = engine.micro_batch(micro_step);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            if (!is_used(job, step, number, unit)) {
                engine.gradients_ready(unit);
                continue;
            }
            auto const gradients = engine.gradients(unit);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                auto const to = gradients[parameter];
                std::vector<G> values(to.size());
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = from_float<G>(gradient_of(job, step, number, parameter, i) * scale);
                }
                kept.emplace_back(values);
                G const* const added = kept.back().data();
                cuda::Backend::accumulate(stream, to.data(), added, values.size());
            }
            engine.gradients_ready(unit);
        }
    }
    return engine.step(0.01).report();
}

/// Trains on a communicator of devices and returns what this rank saw.
template <class Stage, class Communicator>
std::vector<Seen> train_on_device(Communicator& communicator, typename Stage::Options options,
                                  Job const& job) {
    cuda::OwnedStream const stream;
    options.compute_queue = stream.get();
    configure(options, job);
    Stage engine(
        communicator,
        registration<typename Stage::ParameterType, typename Stage::GradientType>(job.specs),
        options);
    std::vector<Seen> result;
    for (std::uint64_t step = 0; step < job.steps; ++step) {
        auto const report = run_step_on_device(engine, stream.get(), job, step);
        result.push_back(seen_on_device(engine, report, job));
    }
    return result;
}

} // namespace zero::test::tree
