#include "host.hpp"

#include <zero/cuda/backend.cuh>

#include <cstdio>

int main() {
    try {
        zero::cuda::Backend::fill(nullptr, static_cast<float*>(nullptr), 0,
                                  1.0F); // a no-op, even without a device
    } catch (zero::CudaError const& error) {
        std::puts(error.what());
    }
    std::printf("zero %s\n", version().c_str());
}
