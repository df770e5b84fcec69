#pragma once

#include <zero/cuda/detail/check.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

namespace zero::bench {

/// Owns device memory.
template <class T>
class DeviceArray {
public:
    /// Filled with zeros.
    explicit DeviceArray(std::size_t elements) {
        cuda::detail::check(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)),
                            "cudaMalloc");
        cuda::detail::check(cudaMemset(_data, 0, elements * sizeof(T)), "cudaMemset");
    }
    explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
        cuda::detail::check(
            cudaMemcpy(_data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
    DeviceArray(DeviceArray const&) = delete;
    DeviceArray& operator=(DeviceArray const&) = delete;
    ~DeviceArray() { cuda::detail::ignore(cudaFree(_data)); }
    [[nodiscard]] T* data() const { return _data; }

private:
    T* _data = nullptr;
};

} // namespace zero::bench
