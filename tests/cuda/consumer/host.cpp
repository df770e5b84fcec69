#include "host.hpp"

#include <zero/cuda/runtime_backend.hpp>
#include <zero/zero.hpp>

#include <concepts>

static_assert(std::same_as<zero::cuda::RuntimeBackend::Queue, cudaStream_t>);

std::string version() {
    return std::to_string(zero::version_major) + '.' + std::to_string(zero::version_minor) + '.'
           + std::to_string(zero::version_patch);
}
