#pragma once

#include "../../core/detail/namespace.hpp"
#include "squares_avx2.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ZERO_NAMESPACE::host::detail {

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

/// @brief Copies memory and bypasses the caches where the processor allows it. `memcpy` decides by
/// the size of one call; below many megabytes it also reads the lines that it overwrites.
inline void copy_past_caches(void* out, void const* in, std::size_t bytes) noexcept {
#if ZERO_HOST_HAS_AVX2 // only instructions of the x86-64 baseline are used here
    constexpr std::size_t line = 64;
    auto* to = static_cast<std::byte*>(out);
    auto const* from = static_cast<std::byte const*>(in);
    std::size_t const before = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    if (bytes >= line + before) {
        std::memcpy(to, from, before);
        to += before;
        from += before;
        bytes -= before;
        for (; bytes >= line; bytes -= line, to += line, from += line) {
            prefetch_after(from);
            for (std::size_t at = 0; at < line; at += sizeof(LongLong2)) {
                LongLong2 word;
                __builtin_memcpy(&word, from + at, sizeof word);
                stream_word(word, to + at);
            }
        }
        __builtin_ia32_sfence(); // as in Lanes::finish_streams
    }
    std::memcpy(to, from, bytes);
#else
    std::memcpy(out, in, bytes);
#endif
}

/// @brief Copies memory that does not overlap. Used by `HostBackend::copy_bytes` and `convert`.
/// @param moved_bytes bytes that all copies of one operation read and write
inline void copy(void* out, void const* in, std::size_t bytes, std::size_t moved_bytes) noexcept {
    if (moved_bytes >= streaming_copy_bytes) {
        copy_past_caches(out, in, bytes);
    } else {
        std::memcpy(out, in, bytes);
    }
}

} // namespace ZERO_NAMESPACE::host::detail
