#pragma once

// Every .cuh header of the library includes this file: it checks how nvcc is called, and defines
// ZERO_CUDA_NAMESPACE, ZERO_CUDA_HIDDEN and ZERO_KERNEL.
#if !defined(__CUDACC__)
#error "zero: headers that end in .cuh are for nvcc; include them in .cu files only."
#endif
#if !defined(__CUDA_ARCH_LIST__)
#error "zero: this nvcc does not say for which architectures it compiles; use CUDA 12 or later."
#endif

#include "../../../core/version.hpp"

// An instantiation with a type without linkage (an optimizer in an unnamed namespace) cannot be
// hidden and need not be. nvcc reports that as warning 1407, which headers with hidden templates
// suppress.

/// Marks a function that launches a kernel: it is not visible outside a shared library.
#define ZERO_CUDA_HIDDEN __attribute__((visibility("hidden")))
/// Marks a kernel.
#define ZERO_KERNEL ZERO_CUDA_HIDDEN __global__

// Defines ZERO_CUDA_NAMESPACE, the innermost namespace of all device code, inline. Its name lists
// the architectures for which nvcc compiles.
//
// Two libraries of one program may be compiled for different architectures. They must not run each
// other's kernels: a launcher of one would then select a kernel that has no code for the device.
// Therefore kernels and their launchers are hidden, and everything in between has the
// architectures in its name.

// ZERO_CUDA_JOIN(n, a, b, ...) is a_b_...: the first name and n further ones. The preprocessor has
// no loop, so there is one macro per number.
#define ZERO_CUDA_JOIN_1(a, b) a##_##b
#define ZERO_CUDA_JOIN_2(a, b, ...) ZERO_CUDA_JOIN_1(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_3(a, b, ...) ZERO_CUDA_JOIN_2(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_4(a, b, ...) ZERO_CUDA_JOIN_3(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_5(a, b, ...) ZERO_CUDA_JOIN_4(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_6(a, b, ...) ZERO_CUDA_JOIN_5(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_7(a, b, ...) ZERO_CUDA_JOIN_6(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_8(a, b, ...) ZERO_CUDA_JOIN_7(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_9(a, b, ...) ZERO_CUDA_JOIN_8(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_10(a, b, ...) ZERO_CUDA_JOIN_9(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_11(a, b, ...) ZERO_CUDA_JOIN_10(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_12(a, b, ...) ZERO_CUDA_JOIN_11(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_13(a, b, ...) ZERO_CUDA_JOIN_12(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_14(a, b, ...) ZERO_CUDA_JOIN_13(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_15(a, b, ...) ZERO_CUDA_JOIN_14(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_16(a, b, ...) ZERO_CUDA_JOIN_15(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_17(a, b, ...) ZERO_CUDA_JOIN_16(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_18(a, b, ...) ZERO_CUDA_JOIN_17(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_19(a, b, ...) ZERO_CUDA_JOIN_18(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_20(a, b, ...) ZERO_CUDA_JOIN_19(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_21(a, b, ...) ZERO_CUDA_JOIN_20(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_22(a, b, ...) ZERO_CUDA_JOIN_21(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_23(a, b, ...) ZERO_CUDA_JOIN_22(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_24(a, b, ...) ZERO_CUDA_JOIN_23(a##_##b, __VA_ARGS__)
#define ZERO_CUDA_JOIN_COUNTED(count, ...) ZERO_CUDA_JOIN_##count(__VA_ARGS__)
#define ZERO_CUDA_JOIN(count, ...) ZERO_CUDA_JOIN_COUNTED(count, __VA_ARGS__)

#define ZERO_CUDA_25TH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x,     \
                       found, ...)                                                                 \
    found
/// The number of architectures in a list. For a longer list than 24 it is the 25th architecture,
/// which is a larger number.
#define ZERO_CUDA_COUNT(...)                                                                       \
    ZERO_CUDA_25TH(__VA_ARGS__, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8,  \
                   7, 6, 5, 4, 3, 2, 1, 0)

/// v<major>_<minor>_<patch>_sm_<architecture>_..., with architectures numbered as in
/// __CUDA_ARCH_LIST__.
#if ZERO_CUDA_COUNT(__CUDA_ARCH_LIST__) > 24
#error "zero: nvcc compiles for more than 24 architectures; name fewer with -arch or -gencode."
#define ZERO_CUDA_NAMESPACE inline too_many_architectures
#else
#define ZERO_CUDA_NAMESPACE                                                                        \
    inline ZERO_CUDA_JOIN(ZERO_CUDA_COUNT(__CUDA_ARCH_LIST__), v0_2_0_sm, __CUDA_ARCH_LIST__)
#endif
static_assert(zero::version_major == 0 && zero::version_minor == 2 && zero::version_patch == 0,
              "zero: ZERO_CUDA_NAMESPACE must name the version of core/version.hpp.");
