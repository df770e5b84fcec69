#pragma once

#include "../../core/detail/namespace.hpp"
#include "../instruction_set.hpp"

#if ZERO_HOST_HAS_AVX2

#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// @file
/// @brief The compilers' vector types and the few instructions that the AVX2 loops share. See
/// lanes_avx2.hpp for the rules of their use.

/// Marks a function that uses vectors of 32 bytes. Only code that runs after
/// `is_supported(InstructionSet::avx2)` returned true may call it.
#define ZERO_HOST_AVX2 __attribute__((target("avx2,fma,f16c")))

using Float8 = float __attribute__((vector_size(32)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using Bits8 = std::uint32_t __attribute__((vector_size(32)));
using Half16 = std::uint16_t __attribute__((vector_size(32)));
using Short16 = std::int16_t __attribute__((vector_size(32)));
using Half8 = std::uint16_t __attribute__((vector_size(16)));
using Short8 = std::int16_t __attribute__((vector_size(16)));
using Bits4 = std::uint32_t __attribute__((vector_size(16)));
using Long2 = std::uint64_t __attribute__((vector_size(16)));
using LongLong2 = long long __attribute__((vector_size(16)));
using Float4 = float __attribute__((vector_size(16)));
using Long4 = long long __attribute__((vector_size(32)));
using Double4 = double __attribute__((vector_size(32)));

/// The distance in bytes between an address that is read and the one that is prefetched: processors
/// do not look far enough ahead by themselves. Measured on 500 MB, with against without: sums of
/// squares and updates are 1.1 times as fast, copies past the caches and accumulation 1.2 times,
/// casts to bfloat16 1.3 times. 512 and 1024 bytes are slower, 4096 bytes are as fast.
inline constexpr std::uintptr_t prefetch_bytes = 2048;

/// Prefetches the cache line `prefetch_bytes` after an address. The line may lie beyond the end of
/// an array: a prefetch does not fault.
[[gnu::always_inline]] inline void prefetch_after(void const* address) noexcept {
    // The sum is a number, because a pointer must not leave its array.
    auto const behind = reinterpret_cast<std::uintptr_t>(address) + prefetch_bytes;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there
    __builtin_prefetch(reinterpret_cast<void const*>(behind));
}

/// Stores past the caches, to an address that is a multiple of 16.
[[gnu::always_inline]] inline void stream_word(LongLong2 const& word, void* to) noexcept {
#if defined(__clang__)
    __builtin_nontemporal_store(word, static_cast<LongLong2*>(to));
#else
    __builtin_ia32_movntdq(static_cast<LongLong2*>(to), word);
#endif
}

} // namespace ZERO_NAMESPACE::host::detail

#endif
