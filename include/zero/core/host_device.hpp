#pragma once

/// @brief Marks functions that run on the host and in kernels. Empty unless nvcc compiles the
/// translation unit.
#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__
#else
#define ZERO_HOST_DEVICE
#endif
