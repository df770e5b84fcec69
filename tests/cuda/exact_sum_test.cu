#include "cuda/device.hpp"

#include <zero/cuda/detail/kernels/exact_sum.cuh>
#include <zero/cuda/detail/kernels/launch.cuh>
#include <zero/cuda/owned_stream.hpp>
#include <zero/ops/exact_sum.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

// Sums of a warp at their bounds: nothing is lost, whatever the windows of its threads hold and
// wherever they begin.

namespace zero::test::exact_sum_test {

namespace {

namespace kernels = cuda::detail;
using kernels::Window;

__global__ void windows_kernel(Window const* windows, ops::Inspection* result) {
    __shared__ kernels::BlockDigits block;
    block.clear();
    __syncthreads();
    kernels::add_windows(windows[threadIdx.x], block);
    __syncthreads();
    block.move_to(*result);
}

/// Adds `count` times the same number in each thread.
__global__ void numbers_kernel(double const* numbers, double const* firsts, unsigned count,
                               ops::Inspection* result) {
    __shared__ kernels::BlockDigits block;
    block.clear();
    __syncthreads();
    kernels::ThreadSum sum(block);
    sum.add(firsts[threadIdx.x]);
    for (unsigned i = 1; i < count; ++i) {
        sum.add(numbers[threadIdx.x]);
    }
    sum.flush();
    __syncthreads();
    block.move_to(*result);
}

/// The same sum on the host, in parts that `add_significands` takes.
ops::Inspection sum_of(std::vector<Window> const& windows) {
    constexpr std::uint64_t part = (std::uint64_t{1} << 28U) - 1;
    ops::Inspection result;
    for (Window const& window : windows) {
        for (unsigned bit = 0; bit < 128; bit += 28) {
            std::uint64_t const word =
                bit >= 64 ? window.high >> (bit - 64)
                          : window.low >> bit | (bit == 0 ? 0 : window.high << (64 - bit));
            result.add_significands(word & part, static_cast<int>(window.position + bit) + 777);
        }
    }
    result.carry();
    return result;
}

bool is_sum_on_device(std::vector<Window> const& windows) {
    cuda::OwnedStream const stream;
    DeviceArray<Window> const in(windows);
    DeviceArray<ops::Inspection> const out(std::vector<ops::Inspection>(1));
    kernels::launch(stream.get(), 1, static_cast<unsigned>(windows.size()), windows_kernel,
                    in.data(), out.data());
    ops::Inspection result = on_host(out)[0];
    result.carry();
    ops::Inspection const expected = sum_of(windows);
    for (std::size_t i = 0; i < ops::Inspection::count; ++i) {
        if (result.sums[i] != expected.sums[i]) {
            return false;
        }
    }
    return true;
}

constexpr Window largest{~std::uint64_t{0}, (std::uint64_t{1} << (Window::bits - 64)) - 1, 0};

Window at(Window window, unsigned position) {
    window.position = position;
    return window;
}

} // namespace

TEST_CASE("The largest windows of a warp add without a loss, at any distance from the lowest one",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    int wrong = 0;
    for (unsigned lowest = 0; lowest < 30; lowest += 9) {
        for (unsigned distance = 0; distance < 90; ++distance) {
            std::vector<Window> windows(64, at(largest, lowest + distance));
            windows[5] = at({1, 0, 0}, lowest);
            windows[40] = at({1, 0, 0}, lowest);
            wrong += is_sum_on_device(windows) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("Every thread of a warp adds its window, also alone and at the end of the grid",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    int wrong = 0;
    for (unsigned thread = 0; thread < 32; ++thread) {
        std::vector<Window> windows(32, Window{0, 0, 0});
        windows[thread] = at(largest, 17 * thread);
        if (17 * thread + Window::bits > 560) {
            windows[thread] = at({3, 0, 0}, 558);
        }
        wrong += is_sum_on_device(windows) ? 0 : 1;
    }
    CHECK(wrong == 0);
    std::vector<Window> scattered;
    for (unsigned thread = 0; thread < 32; ++thread) {
        scattered.push_back(at({~std::uint64_t{0} - thread, thread, 0}, thread * 71 % 430));
    }
    CHECK(is_sum_on_device(scattered));
}

TEST_CASE("The most and largest numbers between two flushes fit into the window of a thread",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    // The first number places the window; the others are as far above it as a window takes.
    std::vector<double> const firsts(32, 1.0);
    std::vector<double> const numbers(32, std::ldexp(2.0 - std::ldexp(1.0, -52), 27));
    DeviceArray<double> const first(firsts);
    DeviceArray<double> const number(numbers);
    DeviceArray<ops::Inspection> const out(std::vector<ops::Inspection>(1));
    kernels::launch(stream.get(), 1, 32, numbers_kernel, number.data(), first.data(),
                    kernels::ThreadSum::most, out.data());
    ops::Inspection expected;
    for (int thread = 0; thread < 32; ++thread) {
        expected.add(1.0);
    }
    // 2^53 - 1, times 2^(27 - 52), times 32 (2^16 - 1)
    for (std::uint64_t i = 0; i < 32; ++i) {
        for (std::uint64_t half = 0; half < 2; ++half) {
            std::uint64_t const integer =
                half == 0 ? (std::uint64_t{1} << 27U) - 1 : (std::uint64_t{1} << 26U) - 1;
            expected.add_significands(integer * (kernels::ThreadSum::most - 1),
                                      1023 + 27 + (half == 0 ? 0 : 27));
        }
    }
    ops::Inspection result = on_host(out)[0];
    result.carry();
    expected.carry();
    for (std::size_t i = 0; i < ops::Inspection::count; ++i) {
        CHECK(result.sums[i] == expected.sums[i]);
    }
}

} // namespace zero::test::exact_sum_test
