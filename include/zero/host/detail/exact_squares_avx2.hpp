#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../instruction_set.hpp"
#include "vectors_avx2.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

#if ZERO_HOST_HAS_AVX2

namespace ZERO_NAMESPACE::host::detail {

/// Sums the squares of many bfloat16 at once, if no addition rounds. Used by
/// `SquaresAvx2`.
///
/// A bfloat16 of exponent e has 8 significant bits, so its square is a multiple of 4^e * 2^-14. Let
/// e be the smallest exponent of all non-zero elements. Then all squares and their sums are
/// multiples of that unit, and a double holds multiples below 2^53 units exactly: smaller sums
/// never round.
///
/// Elements become doubles by moving bits: exponent and significand move to their places in a
/// double, and the two bits above the exponent (one of which was the sign) are set. The result is
/// |x| * 2^-128. Only zeros and subnormal numbers are wrong. A zero becomes 2^-127; its square is
/// lost beside the square of any element of at least 2^-87, because a double has 53 bits. Smaller
/// elements are left to the caller.
class ExactSquares {
public:
    static constexpr std::size_t elements = 512;

    /// @return the sum of squares of `elements` elements; a NaN unless it is certain that no sum
    /// rounded
    ZERO_HOST_AVX2 static double sum(bfloat16 const* from) noexcept {
        ExactSquares squares;
        for (std::size_t i = 0; i < elements;
             i += 64) { // unrolled by hand, because GCC does not unroll loops at -O2
            prefetch_after(from + i);
            prefetch_after(from + i + 32);
            squares.add(from + i);
            squares.add(from + i + 16);
            squares.add(from + i + 32);
            squares.add(from + i + 48);
        }
        return squares.certain_sum();
    }

private:
    static constexpr int first_exponent =
        40; // exponent of the smallest element beside which zeros are lost, biased as in bfloat16

    ZERO_HOST_AVX2 ExactSquares() noexcept
        : _sums{}, _minus_two(Half16{} - static_cast<std::uint16_t>(2)), _least{} {
        __asm__(""
                : "+x"(_minus_two)); // GCC would turn a known constant into a subtraction and shift
    }

    ZERO_HOST_AVX2 void add(bfloat16 const* from) noexcept {
        Half16 x;
        __builtin_memcpy(&x, from, sizeof x);
        keep_larger(x * _minus_two);
        Half16 const upper = x >> 3 | static_cast<std::uint16_t>(0x3000);
        Half16 const lower = x << 13;
        Bits8 const first = (Bits8)__builtin_shufflevector(lower, upper, 0, 16, 1, 17, 2, 18, 3, 19,
                                                           8, 24, 9, 25, 10, 26, 11, 27);
        Bits8 const second = (Bits8)__builtin_shufflevector(lower, upper, 4, 20, 5, 21, 6, 22, 7,
                                                            23, 12, 28, 13, 29, 14, 30, 15, 31);
        add_squares<0>(first);
        add_squares<2>(second);
    }

    template <int first>
    ZERO_HOST_AVX2 void add_squares(Bits8 const& upper_halves) noexcept {
        Double4 const even =
            (Double4)__builtin_shufflevector(Bits8{}, upper_halves, 0, 8, 1, 9, 4, 12, 5, 13);
        Double4 const odd =
            (Double4)__builtin_shufflevector(Bits8{}, upper_halves, 2, 10, 3, 11, 6, 14, 7, 15);
        _sums[first] += even * even; // the products are exact, so a contraction changes nothing
        _sums[first + 1] += odd * odd;
    }

    ZERO_HOST_AVX2 void keep_larger(Half16 const& x) noexcept {
#if defined(__clang__)
        _least = __builtin_elementwise_max(_least, x);
#else
        _least = (Half16)__builtin_ia32_pmaxuw256((Short16)_least, (Short16)x);
#endif
    }

    /// Returns twice the bits of the smallest non-zero magnitude; 2^16 if there is none.
    ZERO_HOST_AVX2 unsigned smallest_twice() const noexcept {
        Half16 const others = ~_least;
        auto const low = (Half8)__builtin_ia32_phminposuw128(
            (Short8)__builtin_shufflevector(others, others, 0, 1, 2, 3, 4, 5, 6, 7));
        auto const high = (Half8)__builtin_ia32_phminposuw128(
            (Short8)__builtin_shufflevector(others, others, 8, 9, 10, 11, 12, 13, 14, 15));
        return 1U + (low[0] < high[0] ? low[0] : high[0]);
    }

    ZERO_HOST_AVX2 double certain_sum() const noexcept {
        unsigned const least = smallest_twice();
        if (least == 0x10000) {
            return 0.0;
        }
        int const exponent = static_cast<int>(least >> 8U);
        Double4 const all = (_sums[0] + _sums[1]) + (_sums[2] + _sums[3]);
        double const sum =
            (all[0] + all[1])
            + (all[2] + all[3]); // times 2^-256; at least 1 with an infinity or a NaN
        auto const limit = std::bit_cast<double>(
            static_cast<std::uint64_t>(2 * (exponent - 127) - 14 - 256 + 52 + 1023) << 52U);
        return exponent >= first_exponent && sum < limit && sum < 1.0 ? sum * 0x1p256
                                                                      : __builtin_nan("");
    }

    Double4 _sums[4];
    Half16 _minus_two;
    Half16 _least; // the largest of -2 * bits: twice the smallest magnitude, negated. Zeros stay
                   // zero and do not count.
};

} // namespace ZERO_NAMESPACE::host::detail

#endif
