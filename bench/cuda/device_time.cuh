#pragma once

#include "device_array.cuh"

#include <zero/cuda/owned_stream.hpp>

#include <benchmark/benchmark.h>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace zero::bench {

/// Times the work that `body(stream)` enqueues by CUDA events, each time with caches that hold
/// other data. Reports bytes per second.
template <class Body>
void time_on_device(benchmark::State& state, cudaStream_t stream, std::size_t bytes,
                    Body const& body) {
    constexpr std::size_t flushed = std::size_t{256} << 20U;
    DeviceArray<char> const other(flushed);
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cuda::detail::check(cudaEventCreate(&begin), "cudaEventCreate");
    cuda::detail::check(cudaEventCreate(&end), "cudaEventCreate");
    cuda::detail::check(cudaDeviceSynchronize(),
                        "cudaDeviceSynchronize"); // arrays are still being filled
    for (auto _ : state) {
        cuda::detail::check(cudaMemsetAsync(other.data(), 1, flushed, stream), "cudaMemsetAsync");
        cuda::detail::check(cudaEventRecord(begin, stream), "cudaEventRecord");
        body(stream);
        cuda::detail::check(cudaEventRecord(end, stream), "cudaEventRecord");
        cuda::detail::check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float milliseconds = 0.0F;
        cuda::detail::check(cudaEventElapsedTime(&milliseconds, begin, end),
                            "cudaEventElapsedTime");
        state.SetIterationTime(static_cast<double>(milliseconds) * 1e-3);
    }
    cuda::detail::ignore(cudaEventDestroy(begin));
    cuda::detail::ignore(cudaEventDestroy(end));
    state.SetBytesProcessed(
        static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * bytes));
}

template <class Body>
void time_on_device(benchmark::State& state, std::size_t bytes, Body const& body) {
    cuda::OwnedStream const stream;
    time_on_device(state, stream.get(), bytes, body);
}

/// Reports insufficient memory as an error of the benchmark, so that the other benchmarks run.
inline void add(char const* name, void (*function)(benchmark::State&), std::size_t elements) {
    auto const run = [function](benchmark::State& state) {
        try {
            function(state);
        } catch (CudaError const& error) {
            state.SkipWithError(error.what());
        }
    };
    benchmark::RegisterBenchmark(name, run)
        ->Arg(static_cast<std::int64_t>(elements))
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
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
