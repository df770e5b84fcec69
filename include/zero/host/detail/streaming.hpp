#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// Bytes that a call moves from which on it writes past the caches: then the results would not stay
/// in the last-level cache anyway, and an ordinary store would read every line before it overwrites
/// it. Measured with results of 16 MiB: the sum of two ranks 1.4 times as fast, and 1.15 times with
/// the reader that follows; with results of 4 MiB, which stay in the cache, it and its reader are
/// slower.
inline constexpr std::size_t streaming_bytes = std::size_t{32} << 20U;

/// The same for copies and conversions, of which at least a third of the bytes are results.
/// Measured with results from 3 to 500 MB: copies past the caches are 1.3 to 1.6 times as fast as
/// `memcpy`.
inline constexpr std::size_t streaming_copy_bytes = std::size_t{12} << 20U;

inline constexpr std::size_t streamed_alignment =
    32; ///< bytes; of what the widest store past the caches needs

/// Whether `out`, which the call does not read, should be written with `F::stream_number`.
inline bool is_worth_streaming(void const* out, std::size_t moved_bytes) noexcept {
    return moved_bytes >= streaming_bytes
           && reinterpret_cast<std::uintptr_t>(out) % streamed_alignment == 0;
}

/// Stores a result of arithmetic, whose only NaN is the canonical one.
template <bool streams, class F, class T>
[[gnu::always_inline]] inline void put(F const& value, T* to) noexcept {
    if constexpr (streams) {
        value.stream_number(to);
    } else {
        value.store_number(to);
    }
}

} // namespace ZERO_NAMESPACE::host::detail
