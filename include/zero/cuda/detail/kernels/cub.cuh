#pragma once

#include "../../../core/detail/namespace.hpp"
#include "config.cuh"
#include "launch.cuh"

// The parts of CUB that kernels use. The messages below precede any error of CUB.
#if !__has_include(<cub/version.cuh>)
#error "zero: the kernels need CUB, a part of CCCL in the CUDA toolkit, and nvcc does not find it."
#endif
#include <cub/version.cuh>
#if CUB_VERSION < 200300
#error                                                                                             \
    "zero: this CUB is too old; use CCCL 2.3 or later, which is in the CUDA toolkit from 12.4 on."
#endif

#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// CUB is in the global namespace, or in the one that the program wraps it in. Like this library,
/// CUB names its version and the architectures in an inline namespace.
namespace cub = CUB_NS_QUALIFIER;

/// @brief The minimum, in the form for which CUB uses one instruction on a whole warp.
#if CUB_VERSION >= 300000
using Least = ::cuda::minimum<>;
#else
using Least = cub::Min;
#endif

/// @brief Returns the sum over a whole warp to its first thread. The result of the other threads is
/// not defined.
__device__ inline unsigned sum_of_warp(unsigned value) {
    using Reduce = cub::WarpReduce<unsigned>;
    typename Reduce::TempStorage none;
    return Reduce(none).Sum(value);
}

/// @brief Returns the minimum over a whole warp to all its threads.
__device__ inline unsigned least_of_warp(unsigned value) {
    using Reduce = cub::WarpReduce<unsigned>;
    typename Reduce::TempStorage none;
    return __shfl_sync(whole_warp, Reduce(none).Reduce(value, Least{}), 0);
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
