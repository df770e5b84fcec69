#pragma once

#include "copy_loop.hpp"

#include "squares_avx2.hpp"

#include <cstdint>
#include <cstring>

namespace ZERO_NAMESPACE::host::detail {

ZERO_INLINE void copy_past_caches(void* out, void const* in, std::size_t bytes) noexcept {
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

ZERO_INLINE void copy(void* out, void const* in, std::size_t bytes,
                      std::size_t moved_bytes) noexcept {
    if (moved_bytes >= streaming_copy_bytes) {
        copy_past_caches(out, in, bytes);
    } else {
        std::memcpy(out, in, bytes);
    }
}

} // namespace ZERO_NAMESPACE::host::detail
