#pragma once

// Defines, for the host's compiler, the language extensions of nvcc that the kernels use; see
// cuda_runtime_api.h.

#include "accesses.hpp"
#include "cuda_runtime_api.h"
#include "fibers.hpp"

#include <cmath>
#include <tuple>

#ifdef __clang__ // its -Wall overrides the option that silences g++
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#endif

#define __host__
#define __device__
#define __global__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)
#define __builtin_assume(condition) static_cast<void>(condition)
#define __isGlobal(memory) zero::test::emulated::note_access(memory)

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline void __stwb(uint2* to, uint2 value) {
    *to = value;
}
inline void __stwb(uint4* to, uint4 value) {
    *to = value;
}
inline float __uint_as_float(unsigned bits) {
    return __builtin_bit_cast(float, bits);
}
inline double __longlong_as_double(long long bits) {
    return __builtin_bit_cast(double, bits);
}
inline double __fma_rn(double a, double b, double c) {
    return std::fma(a, b, c);
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float a) {
    return std::sqrt(a);
}

inline void __syncthreads() {
    zero::test::emulated::Block::current().sync_all();
}
inline int __syncthreads_or(int predicate) {
    return zero::test::emulated::Block::current().any_of_all(predicate != 0 ? 1 : 0) != 0 ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
    (void)zero::test::emulated::Block::current().any_of_warp(mask, 0U);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return zero::test::emulated::Block::current().any_of_warp(mask, (predicate != 0 ? 1U : 0U)
                                                                        << threadIdx.x % 32);
}
template <class T>
T __shfl_sync(unsigned mask, T value, unsigned lane) {
    return zero::test::emulated::Block::current().shuffle(mask, value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lanes) {
    return __shfl_sync(mask, value, threadIdx.x ^ lanes);
}
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
    ++zero::test::emulated::atomic_additions;
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
inline long long atomicMin(long long* to, long long value) {
    long long old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (value < old
           && !__atomic_compare_exchange_n(to, &old, value, false, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED)) {}
    return old;
}

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    ++zero::test::emulated::kernels;
    dim3 const grid = config->gridDim;
    dim3 const block = config->blockDim;
    return zero::test::emulated::enqueue(
        config->stream, [=, all = std::tuple<std::remove_cv_t<Parameters>...>(arguments...)] {
            gridDim = grid;
            blockDim = block;
            auto& runner = zero::test::emulated::Block::current();
            for (unsigned index = 0; index < grid.x; ++index) {
                blockIdx = dim3(index);
                runner.run(block.x, [&] { std::apply(kernel, all); });
            }
        });
}
