#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/counter_random.hpp"
#include "../instruction_set.hpp"
#include "squares_avx2.hpp"

#if ZERO_HOST_HAS_AVX2

#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// `ops::random_bits` of eight consecutive counters.
struct RandomBitsAvx2 {
    ZERO_HOST_AVX2 RandomBitsAvx2(std::uint64_t key, std::uint64_t counter) noexcept {
        auto const first = static_cast<std::uint32_t>(counter);
        std::uint32_t const second = ops::second_random_key(key, counter);
        Bits8 const lower = first + Bits8{0, 1, 2, 3, 4, 5, 6, 7};
        bits = lower ^ static_cast<std::uint32_t>(key);
        mix();
        bits ^= second;
        if (first > 0xfffffff8U) { // the upper half of some counters is one larger
            bits ^= (Bits8)(lower < first) & (second ^ (second + ops::golden32));
        }
        mix();
    }

    ZERO_HOST_AVX2 void mix() noexcept { // as `ops::mix32`
        bits ^= bits >> 16;
        bits *= 0x7feb352dU;
        bits ^= bits >> 15;
        bits *= 0x846ca68bU;
        bits ^= bits >> 16;
    }

    ZERO_HOST_AVX2 void swap_halves() noexcept { bits = bits >> 16 | bits << 16; }

    Bits8 bits;
};

} // namespace ZERO_NAMESPACE::host::detail

#endif
