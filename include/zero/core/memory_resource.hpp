#pragma once

#include "buffer_kind.hpp"
#include "detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Interface through which a backend allocates memory. Derive from it to place buffers
/// (pinned memory, huge pages, a pool) or to count them.
///
/// Pointers are aligned to at least 128 bytes. Both functions may be called from any thread.
class MemoryResource {
public:
    MemoryResource() = default;
    MemoryResource(MemoryResource const&) = delete;
    MemoryResource& operator=(MemoryResource const&) = delete;
    virtual ~MemoryResource() = default;

    /// @brief Allocates memory. @throws std::bad_alloc if none is available
    [[nodiscard]] virtual void* allocate(std::size_t bytes, BufferKind kind) = 0;

    /// @brief Frees memory from `allocate`, which was called with the same `bytes` and `kind`.
    virtual void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept = 0;
};

} // namespace ZERO_NAMESPACE
