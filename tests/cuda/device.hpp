#pragma once

#include "support/catch.hpp"

#include <zero/cuda/detail/runtime/check.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <span>
#include <type_traits>
#include <utility>
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

/// While an object lives, `DeviceArray` and `on_host` of this thread work in the order of a stream
/// and wait for no other. Otherwise they wait for the whole device, where a kernel of another rank
/// may wait for a later call of this thread.
class StreamScope {
public:
    explicit StreamScope(cudaStream_t stream) : _before(std::exchange(current(), stream)) {}
    StreamScope(StreamScope const&) = delete;
    StreamScope& operator=(StreamScope const&) = delete;
    ~StreamScope() { current() = _before; }

    /// Null: no object lives.
    static cudaStream_t& current() {
        static thread_local cudaStream_t stream = nullptr;
        return stream;
    }

private:
    cudaStream_t _before;
};

/// Copies and waits, because the runtime may return while the memory is still being written, and
/// streams of tests do not wait for the default one.
template <class T>
void copy_to_device(T* device, T const* host, std::size_t elements,
                    cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    cuda::detail::check(cudaMemcpy(device, host, elements * sizeof(T), kind), "cudaMemcpy");
    cuda::detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

/// Device memory for a test, filled with a marker for uninitialised memory: NaN in every type. The
/// constructor waits for the fill, except in a `StreamScope`.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t elements) : _elements(elements) {
        if (elements != 0 && _stream != nullptr) {
            cuda::detail::check(
                cudaMallocAsync(reinterpret_cast<void**>(&_data), elements * sizeof(T), _stream),
                "cudaMallocAsync");
            cuda::detail::check(cudaMemsetAsync(_data, 0xff, elements * sizeof(T), _stream),
                                "cudaMemsetAsync");
        } else if (elements != 0) {
            cuda::detail::check(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)),
                                "cudaMalloc");
            cuda::detail::check(cudaMemset(_data, 0xff, elements * sizeof(T)), "cudaMemset");
            cuda::detail::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
        }
    }
    explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
        if (_stream == nullptr) {
            copy_to_device(_data, values.data(), values.size());
        } else if (!values.empty()) {
            cuda::detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
            cuda::detail::check(cudaMemcpyAsync(_data, values.data(), values.size() * sizeof(T),
                                                cudaMemcpyHostToDevice, _stream),
                                "cudaMemcpyAsync");
            cuda::detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        }
    }
    DeviceArray(DeviceArray&& other) noexcept
        : _data(std::exchange(other._data, nullptr)), _elements(other._elements),
          _stream(other._stream) {}
    DeviceArray& operator=(DeviceArray&&) = delete;
    ~DeviceArray() {
        if (_stream == nullptr) {
            cuda::detail::ignore(cudaFree(_data));
        } else if (_data != nullptr) {
            cuda::detail::ignore(cudaFreeAsync(_data, _stream));
        }
    }

    [[nodiscard]] T* data() const { return _data; }
    [[nodiscard]] std::size_t size() const { return _elements; }

private:
    T* _data = nullptr;
    std::size_t _elements;
    cudaStream_t _stream = StreamScope::current();
};

/// Returns the contents of device memory after all enqueued work.
template <class T>
std::vector<std::remove_const_t<T>> on_host(std::span<T> memory) {
    std::vector<std::remove_const_t<T>> values(memory.size());
    if (cudaStream_t const stream = StreamScope::current(); stream != nullptr) {
        // the copy would wait inside of the driver, where other ranks may wait for it
        cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        if (!memory.empty()) {
            cuda::detail::check(cudaMemcpyAsync(values.data(), memory.data(), memory.size_bytes(),
                                                cudaMemcpyDefault, stream),
                                "cudaMemcpyAsync");
        }
        cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        return values;
    }
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
