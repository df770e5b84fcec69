#pragma once

// Every .cuh header of the library includes this file: it checks how nvcc is called, and defines
// ZERO_CUDA_NAMESPACE, ZERO_CUDA_HIDDEN and ZERO_KERNEL.
#if !defined(__CUDACC__)
#error "zero: headers that end in .cuh are for nvcc; include them in .cu files only."
#endif
#if !defined(__CUDA_ARCH_LIST__)
#error "zero: this nvcc does not say for which architectures it compiles; use CUDA 12 or later."
#endif

#include "architecture_namespace.cuh"

// An instantiation with a type without linkage (an optimizer in an unnamed namespace) cannot be
// hidden and need not be. nvcc reports that as warning 1407, which headers with hidden templates
// suppress.

/// Marks a function that launches a kernel: it is not visible outside a shared library.
#define ZERO_CUDA_HIDDEN __attribute__((visibility("hidden")))
/// Marks a kernel.
#define ZERO_KERNEL ZERO_CUDA_HIDDEN __global__
