#pragma once

#include <zero/cuda/error.hpp>
#include <zero/cuda/stream.hpp>

#include <benchmark/benchmark.h>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::bench {

/// Device memory.
template <class T>
class DeviceArray {
public:
    /// Zeros.
    explicit DeviceArray(std::size_t elements) {
        cuda::check(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)), "cudaMalloc");
        cuda::check(cudaMemset(_data, 0, elements * sizeof(T)), "cudaMemset");
    }
    explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
        cuda::check(cudaMemcpy(_data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    DeviceArray(DeviceArray const&) = delete;
    DeviceArray& operator=(DeviceArray const&) = delete;
    ~DeviceArray() { cuda::ignore(cudaFree(_data)); }
    [[nodiscard]] T* data() const { return _data; }

private:
    T* _data = nullptr;
};

/// Times what `body(stream)` enqueues by events of the device, each time with caches that hold something else. Reports bytes per second.
template <class Body>
void time_on_device(benchmark::State& state, std::size_t bytes, Body const& body) {
    constexpr std::size_t flushed = std::size_t{256} << 20U;
    cuda::OwnedStream const stream;
    DeviceArray<char> const other(flushed);
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cuda::check(cudaEventCreate(&begin), "cudaEventCreate");
    cuda::check(cudaEventCreate(&end), "cudaEventCreate");
    for (auto _ : state) {
        cuda::check(cudaMemsetAsync(other.data(), 1, flushed, stream.get()), "cudaMemsetAsync");
        cuda::check(cudaEventRecord(begin, stream.get()), "cudaEventRecord");
        body(stream.get());
        cuda::check(cudaEventRecord(end, stream.get()), "cudaEventRecord");
        cuda::check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float milliseconds = 0.0F;
        cuda::check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        state.SetIterationTime(static_cast<double>(milliseconds) * 1e-3);
    }
    cuda::ignore(cudaEventDestroy(begin));
    cuda::ignore(cudaEventDestroy(end));
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * bytes));
}

/// True without a device, and says so.
inline bool skips_without_device(benchmark::State& state) {
    int devices = 0;
    bool const is_there = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    if (!is_there) {
        state.SkipWithError("skipped: no CUDA device");
    }
    return !is_there;
}

} // namespace zero::bench
