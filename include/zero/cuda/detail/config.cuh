#pragma once

// Built by nvcc only.
#if !defined(__CUDACC__)
#error "zero: headers that end in .cuh are for nvcc; include them in .cu files only."
#endif
#if !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "zero: compile with nvcc --expt-relaxed-constexpr (linking zero::cuda in CMake does it)."
#endif
#if !defined(__CUDA_ARCH_LIST__)
#error "zero: this nvcc does not say for which architectures it compiles; use CUDA 12 or later."
#endif

// Two libraries of one program that were compiled for different architectures must not run each other's kernels: a launcher of the one would then pick
// a kernel that has no code for the device. So kernels and what launches them are hidden, and everything on the way has the architectures in its name.

#define ZERO_CUDA_JOIN_2(a, b) a##_##b
#define ZERO_CUDA_JOIN_3(a, b, c) a##_##b##_##c
#define ZERO_CUDA_JOIN_4(a, b, c, d) a##_##b##_##c##_##d
#define ZERO_CUDA_JOIN_5(a, b, c, d, e) a##_##b##_##c##_##d##_##e
#define ZERO_CUDA_JOIN_6(a, b, c, d, e, f) a##_##b##_##c##_##d##_##e##_##f
#define ZERO_CUDA_JOIN_7(a, b, c, d, e, f, g) a##_##b##_##c##_##d##_##e##_##f##_##g
#define ZERO_CUDA_JOIN_8(a, b, c, d, e, f, g, h) a##_##b##_##c##_##d##_##e##_##f##_##g##_##h
#define ZERO_CUDA_JOIN_9(a, b, c, d, e, f, g, h, i) a##_##b##_##c##_##d##_##e##_##f##_##g##_##h##_##i
#define ZERO_CUDA_JOIN_10(a, b, c, d, e, f, g, h, i, j) a##_##b##_##c##_##d##_##e##_##f##_##g##_##h##_##i##_##j
#define ZERO_CUDA_JOIN_11(a, b, c, d, e, f, g, h, i, j, k) a##_##b##_##c##_##d##_##e##_##f##_##g##_##h##_##i##_##j##_##k
#define ZERO_CUDA_JOIN_12(a, b, c, d, e, f, g, h, i, j, k, l) a##_##b##_##c##_##d##_##e##_##f##_##g##_##h##_##i##_##j##_##k##_##l
#define ZERO_CUDA_PICK(a, b, c, d, e, f, g, h, i, j, k, l, name, ...) name
#define ZERO_CUDA_JOIN(...)                                                                                                                              \
    ZERO_CUDA_PICK(__VA_ARGS__, ZERO_CUDA_JOIN_12, ZERO_CUDA_JOIN_11, ZERO_CUDA_JOIN_10, ZERO_CUDA_JOIN_9, ZERO_CUDA_JOIN_8, ZERO_CUDA_JOIN_7,            \
                   ZERO_CUDA_JOIN_6, ZERO_CUDA_JOIN_5, ZERO_CUDA_JOIN_4, ZERO_CUDA_JOIN_3, ZERO_CUDA_JOIN_2, unused)                                      \
    (__VA_ARGS__)

/// The name of the inline namespace of everything that runs on a device: v<major>_<minor>_<patch>_sm_<architecture>..., as nvcc numbers them.
#define ZERO_CUDA_NAMESPACE ZERO_CUDA_JOIN(v0_1_0_sm, __CUDA_ARCH_LIST__)

// What is instantiated with a type without linkage (an optimizer of an unnamed namespace) can not be hidden and need not be: warning 1407 says so.
/// Marks a kernel, and a function from which one is launched.
#define ZERO_CUDA_HIDDEN __attribute__((visibility("hidden")))
#define ZERO_KERNEL ZERO_CUDA_HIDDEN __global__
