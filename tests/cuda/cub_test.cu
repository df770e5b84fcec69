#include "cuda/device.hpp"

#include <zero/cuda/detail/kernels/cub.cuh>
#include <zero/cuda/detail/kernels/launch.cuh>
#include <zero/cuda/owned_stream.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

// The primitives of CUB that kernels use mean what CUB's documentation says: on a device, and in
// the stand-ins of the emulated device.

namespace zero::test::cub_test {

namespace {

namespace kernels = cuda::detail;

/// Numbers without a pattern, so that a wrong order of the threads changes the result.
std::vector<unsigned> numbers(std::size_t n) {
    std::vector<unsigned> result(n);
    std::uint32_t state = 12345;
    for (unsigned& value : result) {
        state = state * 1664525U + 1013904223U;
        value = state >> 4U;
    }
    return result;
}

/// Not commutative: keeps the order in which threads are combined. Positions in a sequence, base 3.
struct Last {
    __device__ unsigned operator()(unsigned, unsigned b) const { return b; }
};

__global__ void warp_kernel(unsigned const* in, unsigned* sum, unsigned* least, unsigned* last) {
    unsigned const value = in[threadIdx.x];
    unsigned const warp = threadIdx.x / 32;
    unsigned const total = kernels::sum_of_warp(value);
    if (threadIdx.x % 32 == 0) {
        sum[warp] = total;
    }
    least[threadIdx.x] = kernels::least_of_warp(value);
    using Reduce = kernels::cub::WarpReduce<unsigned>;
    typename Reduce::TempStorage none;
    unsigned const result = Reduce(none).Reduce(value, Last{});
    if (threadIdx.x % 32 == 0) {
        last[warp] = result;
    }
}

template <int threads>
__global__ void block_kernel(unsigned const* in, unsigned* least, unsigned* last) {
    using Reduce = kernels::cub::BlockReduce<unsigned, threads>;
    __shared__ typename Reduce::TempStorage memory;
    unsigned const first = Reduce(memory).Reduce(in[threadIdx.x], kernels::Least{});
    __syncthreads(); // before the memory is used again
    unsigned const second = Reduce(memory).Reduce(in[threadIdx.x], Last{});
    if (threadIdx.x == 0) {
        *least = first;
        *last = second;
    }
}

} // namespace

TEST_CASE("A sum and a minimum over a warp take every thread once, in their order", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    std::vector<unsigned> const values = numbers(64);
    DeviceArray<unsigned> const in(values);
    DeviceArray<unsigned> const sum(2);
    DeviceArray<unsigned> const least(64);
    DeviceArray<unsigned> const last(2);
    kernels::launch(stream.get(), 1, 64, warp_kernel, in.data(), sum.data(), least.data(),
                    last.data());
    auto const leasts = on_host(least);
    for (std::size_t warp = 0; warp < 2; ++warp) {
        auto const begin = values.begin() + static_cast<std::ptrdiff_t>(32 * warp);
        CHECK(on_host(sum)[warp] == std::accumulate(begin, begin + 32, 0U));
        CHECK(on_host(last)[warp] == *(begin + 31));
        CHECK(std::count(leasts.begin() + static_cast<std::ptrdiff_t>(32 * warp),
                         leasts.begin() + static_cast<std::ptrdiff_t>(32 * warp + 32),
                         *std::min_element(begin, begin + 32))
              == 32);
    }
}

TEST_CASE("A reduction over a block takes every thread, in their order, and its memory can be used "
          "again",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    std::vector<unsigned> values = numbers(256);
    for (std::size_t const at : {0U, 31U, 32U, 100U, 255U}) {
        std::swap(values[at], *std::min_element(values.begin(), values.end()));
        DeviceArray<unsigned> const in(values);
        DeviceArray<unsigned> const least(1);
        DeviceArray<unsigned> const last(1);
        kernels::launch(stream.get(), 1, 256, block_kernel<256>, in.data(), least.data(),
                        last.data());
        CHECK(on_host(least)[0] == values[at]);
        CHECK(on_host(last)[0] == values[255]);
    }
}

} // namespace zero::test::cub_test
