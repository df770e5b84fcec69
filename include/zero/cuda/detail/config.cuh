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

#include "architecture_namespace.cuh"

// What is instantiated with a type without linkage (an optimizer of an unnamed namespace) cannot
// be hidden and need not be: warning 1407 says so.
/// Marks a kernel, and a function from which one is launched.
#define ZERO_CUDA_HIDDEN __attribute__((visibility("hidden")))
#define ZERO_KERNEL ZERO_CUDA_HIDDEN __global__
