#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// @brief Copies memory and bypasses the caches where the processor allows it. `memcpy` decides by
/// the size of one call; below many megabytes it also reads the lines that it overwrites.
void copy_past_caches(void* out, void const* in, std::size_t bytes) noexcept;

/// @brief Copies memory that does not overlap. Used by `HostBackend::copy_bytes` and `convert`.
/// @param moved_bytes bytes that all copies of one operation read and write
void copy(void* out, void const* in, std::size_t bytes, std::size_t moved_bytes) noexcept;

/// @file
/// @brief The conditions under which the host loops bypass the caches ("stream"), and their means.

/// The number of moved bytes from which a call writes past the caches. Such results would not stay
/// in the last-level cache, and an ordinary store would read every line before it overwrites it.
/// Measured with results of 16 MiB: the sum of two ranks is 1.4 times as fast, and 1.15 times
/// together with the code that reads it next. With results of 4 MiB, which stay in the cache, both
/// are slower.
inline constexpr std::size_t streaming_bytes = std::size_t{32} << 20U;

/// The same limit for copies and conversions, where at least a third of the bytes are results.
/// Measured with results of 3 to 500 MB: copies past the caches are 1.3 to 1.6 times as fast as
/// `memcpy`.
inline constexpr std::size_t streaming_copy_bytes = std::size_t{12} << 20U;

/// The alignment in bytes that the widest store past the caches needs.
inline constexpr std::size_t streamed_alignment = 32;

/// Returns whether to write `out` with `F::stream_number`. The call must not read `out`.
inline bool is_worth_streaming(void const* out, std::size_t moved_bytes) noexcept {
    return moved_bytes >= streaming_bytes
           && reinterpret_cast<std::uintptr_t>(out) % streamed_alignment == 0;
}

/// Stores a pack whose only NaN is the canonical one, past the caches if `streams`.
template <bool streams, class F, class T>
[[gnu::always_inline]] inline void put(F const& value, T* to) noexcept {
    if constexpr (streams) {
        value.stream_number(to);
    } else {
        value.store_number(to);
    }
}

} // namespace ZERO_NAMESPACE::host::detail

#if !defined(ZERO_COMPILED)
#include "copy_loop.ipp"
#endif
