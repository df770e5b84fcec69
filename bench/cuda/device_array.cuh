#pragma once

#include <zero/core/convert.hpp>
#include <zero/cuda/detail/kernels/launch.cuh>
#include <zero/cuda/detail/runtime/check.hpp>

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// Memory of a device, and the data of the benchmarks in it: random inputs, and outputs that hold
// NaN before they are written. A benchmark of constant data times other paths than a training
// takes: a norm of zeros adds nothing, and roots of zero are slow.
namespace zero::bench {

/// Owns device memory.
template <class T>
class DeviceArray {
public:
    /// Filled with the bits of NaN.
    explicit DeviceArray(std::size_t elements) {
        cuda::detail::check(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)),
                            "cudaMalloc");
        cuda::detail::check(cudaMemset(_data, 0xff, elements * sizeof(T)), "cudaMemset");
        cuda::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
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

/// Returns a normally distributed number that depends on the index alone (Box and Muller's method
/// on the bits of splitmix64).
__host__ __device__ inline float normal_of(std::uint64_t index) {
    std::uint64_t bits = (index + 1) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
    bits ^= bits >> 31U;
    constexpr float unit = 1.0F / 4294967296.0F;
    float const radius = (static_cast<float>(bits >> 32U) + 1.0F) * unit; // in (0, 1]
    float const angle = static_cast<float>(bits & 0xffffffffU) * unit;
    return sqrtf(-2.0F * logf(radius)) * cosf(6.2831853F * angle);
}

template <class T>
__global__ void normal_kernel(T* out, std::size_t elements, float deviation) {
    std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < elements;
         i += step) {
        out[i] = from_float<T>(deviation * normal_of(i));
    }
}

template <class = void>
__global__ void squares_kernel(float* out, float const* in, std::size_t elements) {
    std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < elements;
         i += step) {
        out[i] = in[i] * in[i];
    }
}

constexpr float gradient_deviation = 1e-3F;  ///< as in bench/peers/torch_adamw.py
constexpr float parameter_deviation = 0.02F; ///< likewise

/// Fills with normally distributed numbers, the same in each call, and waits.
template <class T>
void fill_normal(T* out, std::size_t elements, float deviation) {
    cuda::detail::launch(cudaStreamPerThread, 2048, 256, normal_kernel<T>, out, elements,
                         deviation);
    cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

/// Computes out[i] = in[i] * in[i], and waits.
inline void fill_squares(float* out, float const* in, std::size_t elements) {
    cuda::detail::launch(cudaStreamPerThread, 2048, 256, squares_kernel<>, out, in, elements);
    cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

/// Memory that timed work reads.
struct TimedInput {
    void const* data;
    std::size_t bytes;
};

/// Returns whether the first words of 4 bytes are all equal.
inline bool is_constant(TimedInput const& input) {
    std::vector<std::uint32_t> words(input.bytes / sizeof(std::uint32_t));
    words.resize(words.size() < 1024 ? words.size() : 1024);
    cuda::detail::check(cudaMemcpy(words.data(), input.data, words.size() * sizeof(std::uint32_t),
                                   cudaMemcpyDeviceToHost),
                        "cudaMemcpy");
    for (std::uint32_t const word : words) {
        if (word != words[0]) {
            return false;
        }
    }
    return true;
}

} // namespace zero::bench
