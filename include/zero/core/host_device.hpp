#pragma once

/// @brief Macros for functions of kernels. ZERO_HOST_DEVICE marks functions that run on the host
/// and in kernels. Empty unless nvcc compiles the translation unit.
///
/// ZERO_NO_SIDE_CHECK stands before a template that is marked so, and calls functions that exist on
/// one of the sides alone, depending on its arguments: nvcc then warns of no call.
#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__
#define ZERO_NO_SIDE_CHECK _Pragma("nv_exec_check_disable")
#else
#define ZERO_HOST_DEVICE
#define ZERO_NO_SIDE_CHECK
#endif
