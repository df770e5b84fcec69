#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// @brief Copies memory and bypasses the caches where the processor allows it. `memcpy` decides by
/// the size of one call; below many megabytes it also reads the lines that it overwrites.
void copy_past_caches(void* out, void const* in, std::size_t bytes) noexcept;

/// @brief Copies memory that does not overlap. Used by `HostBackend::copy_bytes` and `convert`.
/// @param moved_bytes bytes that all copies of one operation read and write
void copy(void* out, void const* in, std::size_t bytes, std::size_t moved_bytes) noexcept;

} // namespace ZERO_NAMESPACE::host::detail

#if !defined(ZERO_COMPILED)
#include "copy_loop.ipp"
#endif
