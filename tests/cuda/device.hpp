#pragma once

#include "support/catch.hpp"

#include <zero/cuda/detail/check.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <span>
#include <type_traits>
#include <vector>

namespace zero::test {

inline bool has_device() {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

/// Reports a missing device in words that CTest recognises as a skipped test. Call it first in a
/// test case that needs a device.
inline bool skips_without_device() {
    if (has_device()) {
        return false;
    }
    std::puts("skipped: no CUDA device");
    SUCCEED("skipped: no CUDA device");
    return true;
}

/// Copies and waits, because the runtime may return while the memory is still being written, and
/// streams of tests do not wait for the default one.
template <class T>
void copy_to_device(T* device, T const* host, std::size_t elements) {
    cuda::detail::check(cudaMemcpy(device, host, elements * sizeof(T), cudaMemcpyHostToDevice),
                        "cudaMemcpy");
    cuda::detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

/// Device memory for a test, filled with a marker for uninitialised memory: NaN in every type. The
/// constructor waits for the fill.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t elements) : _elements(elements) {
        if (elements != 0) {
            cuda::detail::check(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)),
                                "cudaMalloc");
            cuda::detail::check(cudaMemset(_data, 0xff, elements * sizeof(T)), "cudaMemset");
            cuda::detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
        }
    }
    explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
        copy_to_device(_data, values.data(), values.size());
    }
    DeviceArray(DeviceArray&& other) noexcept : _data(other._data), _elements(other._elements) {
        other._data = nullptr;
    }
    DeviceArray& operator=(DeviceArray&&) = delete;
    ~DeviceArray() { cuda::detail::ignore(cudaFree(_data)); }

    [[nodiscard]] T* data() const { return _data; }
    [[nodiscard]] std::size_t size() const { return _elements; }

private:
    T* _data = nullptr;
    std::size_t _elements;
};

/// Returns the contents of device memory after all enqueued work.
template <class T>
std::vector<std::remove_const_t<T>> on_host(std::span<T> memory) {
    std::vector<std::remove_const_t<T>> values(memory.size());
    cuda::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cuda::detail::check(
        cudaMemcpy(values.data(), memory.data(), memory.size_bytes(), cudaMemcpyDefault),
        "cudaMemcpy");
    return values;
}

template <class T>
std::vector<T> on_host(DeviceArray<T> const& memory) {
    return on_host(std::span<T const>(memory.data(), memory.size()));
}

} // namespace zero::test
