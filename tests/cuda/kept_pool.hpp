#pragma once

#include <zero/cuda/detail/runtime/check.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

// The memory pool of a device that several ranks share.
namespace zero::test {

/// The pool must neither give memory back to the driver, nor reuse memory by making the stream of
/// one rank wait for that of another.
inline void prepare_pool(int device) {
    cudaMemPool_t pool = nullptr;
    std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
    int reuses = 0;
    cuda::detail::check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
    cuda::detail::check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept),
                        "cudaMemPoolSetAttribute");
    cuda::detail::check(
        cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &reuses),
        "cudaMemPoolSetAttribute");
}

} // namespace zero::test
