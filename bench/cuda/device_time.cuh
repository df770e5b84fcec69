#pragma once

#include "device_timer.cuh"
#include "models.hpp"

#include <zero/cuda/owned_stream.hpp>

#include <benchmark/benchmark.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::bench {

/// Times the work that `body(stream)` enqueues, for a benchmark whose argument is the number of
/// elements. Reports bytes per second. Refuses constant inputs.
template <class Body>
void time_on_device(benchmark::State& state, cudaStream_t stream, std::size_t bytes,
                    std::vector<TimedInput> const& inputs, Body const& body) {
    for (TimedInput const& input : inputs) {
        if (is_constant(input)) {
            state.SkipWithError("an input is constant: its time would say nothing about training");
            return;
        }
    }
    std::size_t const launches = launches_for(static_cast<std::size_t>(state.range(0)));
    DeviceTimer timer;
    for (auto _ : state) {
        state.SetIterationTime(timer.seconds(stream, launches, body));
    }
    state.SetBytesProcessed(
        static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * bytes));
}

template <class Body>
void time_on_device(benchmark::State& state, std::size_t bytes,
                    std::vector<TimedInput> const& inputs, Body const& body) {
    cuda::OwnedStream const stream;
    time_on_device(state, stream.get(), bytes, inputs, body);
}

/// Returns the tensor sizes of a benchmark that `add` has added.
inline std::vector<std::size_t> sizes_of(benchmark::State const& state) {
    return model_of(static_cast<std::size_t>(state.range(0)));
}

/// Adds a benchmark for each model. Reports insufficient memory as an error of the benchmark, so
/// that the other benchmarks run.
inline void add(char const* name, void (*function)(benchmark::State&)) {
    auto const run = [function](benchmark::State& state) {
        try {
            function(state);
        } catch (CudaError const& error) {
            state.SkipWithError(error.what());
        }
    };
    for (auto const& sizes : models()) {
        benchmark::RegisterBenchmark(name, run)
            ->Arg(static_cast<std::int64_t>(elements_of(sizes)))
            ->UseManualTime()
            ->MinTime(0.1) // shorter than by default, because there are three models
            ->Unit(benchmark::kMillisecond);
    }
}

/// Returns whether there is no device, and skips the benchmark in that case.
inline bool skips_without_device(benchmark::State& state) {
    int devices = 0;
    bool const is_there = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    if (!is_there) {
        state.SkipWithError("skipped: no CUDA device");
    }
    return !is_there;
}

} // namespace zero::bench
