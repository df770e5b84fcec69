#pragma once

/// Marks functions that a kernel may call, too. Empty unless the translation unit is compiled by
/// nvcc.
#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__
#else
#define ZERO_HOST_DEVICE
#endif
