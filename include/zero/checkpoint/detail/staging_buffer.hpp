#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../host/host_backend.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Files are written, and read into a device, in pieces of this size.
inline constexpr std::size_t piece_bytes = std::size_t{1} << 22U;

/// @brief Makes the buffer through which data passes between a file and the memory of a backend;
/// empty if the host can access that memory.
///
/// It comes from `Backend::staging_memory()`, which returns a `MemoryResource&` of host memory from
/// which the device copies fast; from the heap if the backend has no such function.
template <class Backend>
[[nodiscard]] Buffer<std::byte> staging_buffer() {
    if constexpr (requires { requires Backend::is_device; }) {
        MemoryResource* memory = nullptr;
        if constexpr (requires { Backend::staging_memory(); }) {
            memory = &Backend::staging_memory();
        } else {
            memory = &HostBackend::default_memory();
        }
        return {*memory, piece_bytes, BufferKind::scratch};
    } else {
        return {};
    }
}

} // namespace ZERO_NAMESPACE::detail
