#include "host.hpp"

#include <zero/cuda/backend.cuh>

#include <cstdio>

#if defined(ZERO_CUDA_COMPILED) && (defined(CUB_VERSION) || defined(THRUST_VERSION))
#error "a unit that links zero::cuda_compiled includes CUB"
#endif

#if defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "zero::cuda makes its users pass --expt-relaxed-constexpr"
#endif

int main() {
    try {
        float const* const no_peers[] = {nullptr, nullptr};
        zero::cuda::Backend::sum_ranks(nullptr, static_cast<float*>(nullptr), no_peers, 2,
                                       0); // in the library, if that is linked
        zero::cuda::Backend::fill(nullptr, static_cast<float*>(nullptr), 0,
                                  1.0F); // a no-op, even without a device
    } catch (zero::CudaError const& error) {
        std::puts(error.what());
    }
    std::printf("zero %s\n", version().c_str());
}
