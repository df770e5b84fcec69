#pragma once

#include "device_array.cuh"

#include <zero/cuda/detail/kernels/launch.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

// The time of work on a device.
namespace zero::bench {

/// Reads memory and writes nothing.
template <class = void>
__global__ void read_kernel(uint4 const* from, std::size_t words, unsigned* sum) {
    unsigned bits = 0;
    std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < words; i += step) {
        uint4 const word = from[i];
        bits |= word.x ^ word.y ^ word.z ^ word.w;
    }
    if (bits == 0x12345678U) { // never true, but the compiler cannot know
        *sum = bits;
    }
}

/// Enqueues a pass that reads `bytes` bytes, a multiple of 16.
inline void read(cudaStream_t stream, void const* from, std::size_t bytes, unsigned* sum) {
    cuda::detail::launch(stream, 2048, 256, read_kernel<>, static_cast<uint4 const*>(from),
                         bytes / sizeof(uint4), sum);
}

/// Times work by CUDA events, each launch with caches that hold other data: 256 MiB, twice the
/// largest cache of a device. That data is read rather than filled, so the timed work need not
/// write any of it back.
class DeviceTimer {
public:
    explicit DeviceTimer(std::size_t flushed_bytes = std::size_t{256} << 20U)
        : _flushed_bytes(flushed_bytes), _other(flushed_bytes) {
        cuda::detail::check(cudaDeviceSynchronize(),
                            "cudaDeviceSynchronize"); // arrays are still being filled
    }
    DeviceTimer(DeviceTimer&&) = delete;
    DeviceTimer& operator=(DeviceTimer&&) = delete;
    ~DeviceTimer() {
        for (cudaEvent_t const event : _events) {
            cuda::detail::ignore(cudaEventDestroy(event));
        }
    }

    /// Returns the seconds of one call of `body(stream)`, averaged over `launches` calls. Each
    /// stands between two events, behind a flush of its own; the host waits once, at the end.
    template <class Body>
    double seconds(cudaStream_t stream, std::size_t launches, Body const& body) {
        while (_events.size() < 2 * launches) {
            _events.push_back(nullptr);
            cuda::detail::check(cudaEventCreateWithFlags(&_events.back(), cudaEventDefault),
                                "cudaEventCreateWithFlags");
        }
        for (std::size_t launch = 0; launch < launches; ++launch) {
            read(stream, _other.data(), _flushed_bytes, _sum.data());
            cuda::detail::check(cudaEventRecord(_events[2 * launch], stream), "cudaEventRecord");
            body(stream);
            cuda::detail::check(cudaEventRecord(_events[2 * launch + 1], stream),
                                "cudaEventRecord");
        }
        cuda::detail::check(cudaEventSynchronize(_events[2 * launches - 1]),
                            "cudaEventSynchronize");
        double sum = 0.0;
        for (std::size_t launch = 0; launch < launches; ++launch) {
            float milliseconds = 0.0F;
            cuda::detail::check(
                cudaEventElapsedTime(&milliseconds, _events[2 * launch], _events[2 * launch + 1]),
                "cudaEventElapsedTime");
            sum += static_cast<double>(milliseconds);
        }
        return sum * 1e-3 / static_cast<double>(launches);
    }

private:
    std::size_t _flushed_bytes;
    DeviceArray<char> _other;
    DeviceArray<unsigned> _sum{1};
    std::vector<cudaEvent_t> _events; ///< the begin and the end of each launch
};

/// Returns how many launches one measurement averages: for small work, whose time the events
/// resolve badly, more than one.
inline std::size_t launches_for(std::size_t elements) {
    return elements <= std::size_t{32} << 20U ? 20 : 1;
}

} // namespace zero::bench
