#pragma once

#include "../../core/detail/namespace.hpp"
#include "../capture_lock.hpp"
#include "check.hpp"
#include "config.cuh"
#include "cub.cuh"
#include "launch.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>

#if CUB_VERSION >= 200400
#include <cub/device/device_for.cuh>
#endif

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

#if CUB_VERSION < 200400 // the CUDA toolkit 12.4, whose CUB has no DeviceFor

/// Calls of the operation by one thread, as in CUB.
inline constexpr std::size_t calls_of_thread = 2;

template <class Operation>
ZERO_KERNEL void __launch_bounds__(block_threads)
    for_each_index_kernel(std::size_t count, Operation operation) {
    std::size_t const first = blockIdx.x * calls_of_thread * block_threads + threadIdx.x;
#pragma unroll
    for (std::size_t call = 0; call < calls_of_thread; ++call) {
        std::size_t const index = first + call * block_threads;
        if (index < count) {
            operation(index);
        }
    }
}

#endif

/// @brief Enqueues one kernel that calls `operation(i)` for each i below `count`, in any order.
/// Enqueues nothing if `count` is 0. @throws CudaError
template <class Operation>
ZERO_CUDA_HIDDEN inline void for_each_index(cudaStream_t stream, std::size_t count,
                                            Operation const& operation) {
#if CUB_VERSION < 200400
    constexpr std::size_t calls_of_block = calls_of_thread * block_threads;
    launch(stream, (count + calls_of_block - 1) / calls_of_block, block_threads,
           for_each_index_kernel<Operation>, count, operation);
#else
    if (count == 0) {
        return;
    }
    CaptureLock const lock(stream);
    cudaError_t const earlier = cudaPeekAtLastError();
    cudaError_t const code = cub::DeviceFor::Bulk(count, operation, stream);
    if (code != earlier) { // if equal, CUB repeats the last error that an earlier call of the
                           // program left, such as the result of a query
        check(code, "cub::DeviceFor::Bulk");
    }
#endif
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
