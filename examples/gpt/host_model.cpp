#include "host_model.hpp"

#include <zero/core/storage_types.hpp>

// The arithmetic of the model on the host for train_gpt.cpp, which declares it: most of the time of
// a training, and none of that of its compiler. CMake optimises this file in every build.

namespace gpt {

template struct HostAttention<float>;
template class HostDevice<float>;

template void load(std::span<float const>, float*) noexcept;
template void load(std::span<zero::bfloat16 const>, float*) noexcept;
template void load(std::span<zero::float16 const>, float*) noexcept;
template void add_to(std::span<float>, float const*) noexcept;
template void add_to(std::span<zero::bfloat16>, float const*) noexcept;
template void add_to(std::span<zero::float16>, float const*) noexcept;

} // namespace gpt
