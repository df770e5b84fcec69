#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/detail/square_anchor.hpp"
#include "../../ops/exact_sum.hpp"
#include "../instruction_set.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if ZERO_HOST_HAS_AVX2

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
using Words4 = std::uint64_t __attribute__((vector_size(32)));
using Double4 = double __attribute__((vector_size(32)));

/// The distance in bytes between an address that is read and the one that is prefetched: the
/// prefetchers of processors do not reach far enough. Measured on 500 MB, relative to loops without
/// prefetches: sums of squares and updates are 1.1 times as fast, copies past the caches and
/// accumulation 1.2 times, casts to bfloat16 1.3 times. Distances of 512 and 1024 bytes are slower.
/// On an AMD EPYC of family 26, sums of two ranks in bfloat16 take 0.90 to 0.94 of the time with
/// 2048 bytes, in float 0.97 to 0.98; 8192 bytes lose that for float.
inline constexpr std::uintptr_t prefetch_bytes = 4096;

/// The distance for loops that read one array and write none: sums of squares from memory are 1.2
/// times as fast as with 2048 there.
inline constexpr std::uintptr_t read_prefetch_bytes = 8192;

/// Prefetches the cache line `bytes` after an address. The line may be beyond the end of an array:
/// a prefetch does not fault.
[[gnu::always_inline]] inline void prefetch_after(void const* address,
                                                  std::uintptr_t bytes = prefetch_bytes) noexcept {
    // The sum is a number, because a pointer must not leave its array.
    auto const behind = reinterpret_cast<std::uintptr_t>(address) + bytes;
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

/// Adds the squares of many elements to an exact sum, as `ops::detail::SquareAnchor` specifies, in
/// 16 accumulators. Used by `InspectLoop` through `Lanes<avx2>`.
///
/// The same pass finds the exponents of the elements. It uses the anchor of the preceding elements;
/// if that does not fit, a second pass uses another one.
template <StorageType T>
class AnchoredSquares {
public:
    static constexpr std::size_t most = 1024; ///< maximum number of elements in a call
    static constexpr std::size_t step = 16;   ///< the number of elements must be a multiple of it

    /// @return false, and nothing is added, if an element is not finite or the exponents are too
    ///     far apart
    ZERO_HOST_AVX2 bool add(T const* from, std::size_t n, ops::Inspection& result) noexcept {
        if (_is_first) {
            Bits8 largest = {};
            Bits8 smallest = {};
            add_exponents(from, largest, smallest);
            int const exponent = exponents_of(largest, smallest).largest + 2; // later ones differ
            _anchor = Anchor(exponent < 254 ? exponent : 254);
            _is_first = false;
        }
        Sums sums;
        Exponents const found = sums.add(from, n, _anchor.anchor);
        if (found.smallest_twice > most_twice) {
            return true; // only zeros
        }
        int const smallest = static_cast<int>(found.smallest_twice >> 24U);
        if (!_anchor.serves(found.largest, smallest)) {
            if (found.largest == 255 || !Anchor(found.largest).serves(found.largest, smallest)) {
                return false;
            }
            _anchor = Anchor(found.largest);
            (void)sums.add(from, n, _anchor.anchor);
        }
        sums.add_to(result, _anchor);
        return true;
    }

private:
    static constexpr int significant_bits = std::is_same_v<T, float>     ? 24
                                            : std::is_same_v<T, float16> ? 11
                                                                         : 8;
    using Anchor = ops::detail::SquareAnchor<significant_bits, 6, 10>; // 64 terms, 1024 elements

    static constexpr std::uint32_t most_twice = 0xfffffffeU; ///< twice the bits of a magnitude

    struct Exponents {
        int largest;                  ///< exponent field
        std::uint32_t smallest_twice; ///< twice the bits of the smallest magnitude that is not
                                      ///< zero; 2^32 - 1 if all are zero
    };

    struct Sums {
        Double4 sum[4];
        Double4 rest[4];

        ZERO_HOST_AVX2 Exponents add(T const* from, std::size_t n, double anchor) noexcept {
            Double4 const first = {anchor, anchor, anchor, anchor};
            Double4 sum0 = first; // named, so that they stay in registers
            Double4 sum1 = first;
            Double4 sum2 = first;
            Double4 sum3 = first;
            Double4 rest0 = {};
            Double4 rest1 = {};
            Double4 rest2 = {};
            Double4 rest3 = {};
            Bits8 largest = {};
            Bits8 smallest = ~largest; // less 1, so that zeros become the largest number
            for (std::size_t i = 0; i < n; i += step) {
                prefetch_after(from + i, read_prefetch_bytes);
                add_exponents(from + i, largest, smallest);
                add_squares(from + i, sum0, rest0);
                add_squares(from + i + 4, sum1, rest1);
                add_exponents(from + i + 8, largest, smallest);
                add_squares(from + i + 8, sum2, rest2);
                add_squares(from + i + 12, sum3, rest3);
            }
            sum[0] = sum0;
            sum[1] = sum1;
            sum[2] = sum2;
            sum[3] = sum3;
            rest[0] = rest0;
            rest[1] = rest1;
            rest[2] = rest2;
            rest[3] = rest3;
            return exponents_of(largest, smallest);
        }

        ZERO_HOST_AVX2 void add_to(ops::Inspection& result, Anchor const& anchor) const noexcept {
            // The bits of doubles between two powers of two count units.
            Long4 const from_zero =
                (Long4)Double4{anchor.anchor, anchor.anchor, anchor.anchor, anchor.anchor};
            Long4 const units = (((Long4)sum[0] - from_zero) + ((Long4)sum[1] - from_zero))
                                + (((Long4)sum[2] - from_zero) + ((Long4)sum[3] - from_zero));
            Double4 const rests = (rest[0] + rest[1]) + (rest[2] + rest[3]);
            constexpr long long offset_units = most / 2;
            result.add_significands(static_cast<std::uint64_t>((units[0] + units[1])
                                                               + (units[2] + units[3])
                                                               - offset_units),
                                    anchor.unit_exponent + 52);
            result.add(((rests[0] + rests[1]) + (rests[2] + rests[3])) + anchor.offset);
        }
    };

    ZERO_HOST_AVX2 static Exponents exponents_of(Bits8 const& largest,
                                                 Bits8 const& smallest) noexcept {
        std::uint32_t most_of_all = 0;
        std::uint32_t least_of_all = smallest[0];
        for (int lane = 0; lane < 8; ++lane) {
            most_of_all = most_of_all < largest[lane] ? largest[lane] : most_of_all;
            least_of_all = smallest[lane] < least_of_all ? smallest[lane] : least_of_all;
        }
        return {static_cast<int>(most_of_all >> 24U),
                least_of_all <= most_twice ? least_of_all + 1 : least_of_all};
    }

    ZERO_HOST_AVX2 static void add_exponents(T const* from, Bits8& largest,
                                             Bits8& smallest) noexcept {
        Bits8 bits;
        load(from, bits);
        bits += bits; // without the sign; in the order of the magnitudes
        Bits8 const less_one = bits - 1U;
#if defined(__clang__)
        largest = __builtin_elementwise_max(largest, bits);
        smallest = __builtin_elementwise_min(smallest, less_one);
#else
        largest = (Bits8)__builtin_ia32_pmaxud256((Int8)largest, (Int8)bits);
        smallest = (Bits8)__builtin_ia32_pminud256((Int8)smallest, (Int8)less_one);
#endif
    }

    ZERO_HOST_AVX2 static void add_squares(T const* from, Double4& sum, Double4& rest) noexcept {
        Float4 x;
        load(from, x);
#if defined(__clang__)
        Double4 const wide = __builtin_convertvector(x, Double4);
#else
        Double4 const wide = __builtin_ia32_cvtps2pd256(x);
#endif
        Double4 const next = __builtin_ia32_vfmaddpd256(wide, wide, sum);
        Double4 const taken = next - sum;
        sum = next;
        rest += __builtin_ia32_vfmaddpd256(wide, wide, -taken);
    }

    ZERO_HOST_AVX2 static void load(float const* from, Bits8& to) noexcept {
        __builtin_memcpy(&to, from, sizeof to);
    }
    ZERO_HOST_AVX2 static void load(bfloat16 const* from, Bits8& to) noexcept {
        Half8 half;
        __builtin_memcpy(&half, from, sizeof half);
#if defined(__clang__)
        to = __builtin_convertvector(half, Bits8) << 16;
#else
        to = (Bits8)__builtin_ia32_pmovzxwd256((Short8)half) << 16;
#endif
    }
    ZERO_HOST_AVX2 static void load(float16 const* from, Bits8& to) noexcept {
        Short8 half;
        __builtin_memcpy(&half, from, sizeof half);
        to = (Bits8)__builtin_ia32_vcvtph2ps256(half);
    }

    ZERO_HOST_AVX2 static void load(float const* from, Float4& to) noexcept {
        __builtin_memcpy(&to, from, sizeof to);
    }
    ZERO_HOST_AVX2 static void load(bfloat16 const* from, Float4& to) noexcept {
        Short8 half;
        load_four(from, half);
#if defined(__clang__)
        to = (Float4)(__builtin_convertvector(
                          __builtin_shufflevector((Half8)half, (Half8)half, 0, 1, 2, 3), Bits4)
                      << 16);
#else
        to = (Float4)(__builtin_ia32_pmovzxwd128(half) << 16);
#endif
    }
    ZERO_HOST_AVX2 static void load(float16 const* from, Float4& to) noexcept {
        Short8 half;
        load_four(from, half);
        to = __builtin_ia32_vcvtph2ps(half);
    }

    ZERO_HOST_AVX2 static void
    load_four(void const* from,
              Short8& to) noexcept { // through a register: the upper half is zero
        std::uint64_t bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        to = (Short8)Long2{bits, 0};
    }

    Anchor _anchor{127};
    bool _is_first = true;
};

/// Sums the squares of many 16-bit elements at once, if no addition rounds. Used by
/// `ExactOrAnchored`.
///
/// The square of an element of exponent e and p significant bits is a multiple of 4^(e - p + 1).
/// Let e be the smallest exponent of all non-zero elements. Then all squares and their sums are
/// multiples of that unit, and a double holds multiples below 2^53 units exactly: smaller sums
/// never round.
///
/// The 2 p bits of a square fit into a float. Squares become doubles by moving bits: exponent and
/// significand move to their places in a double, which is then 2^-896 times the square. Zeros stay
/// zeros. Only subnormal squares are wrong, those of bfloat16 below 2^-63. They are left to the
/// caller.
template <StorageType T>
class ExactSquares {
public:
    static constexpr std::size_t elements = 512;
    static constexpr int significant_bits = std::is_same_v<T, float16> ? 11 : 8;

    /// Whether the lowest 3 bits of squares are 0, so that no shift loses bits or moves them into
    /// a neighbour.
    static constexpr bool has_spare_bits = 2 * significant_bits <= 21;

    /// @return the sum of squares of `elements` elements; a NaN unless it is certain that no sum
    /// rounded
    ZERO_HOST_AVX2 static double sum(T const* from) noexcept {
        ExactSquares squares;
        for (std::size_t i = 0; i < elements;
             i += 64) { // unrolled by hand, because GCC does not unroll loops at -O2
            prefetch_after(from + i, read_prefetch_bytes);
            prefetch_after(from + i + 32, read_prefetch_bytes);
            squares.add(from + i);
            squares.add(from + i + 16);
            squares.add(from + i + 32);
            squares.add(from + i + 48);
        }
        return certain_sum((squares._sums[0] + squares._sums[1])
                               + (squares._sums[2] + squares._sums[3]),
                           squares._least);
    }

    /// @param all sums of squares, times 2^-896
    /// @param least the largest of -2 * bits: twice the smallest magnitude, negated. Zeros stay
    ///     zero and do not count.
    ZERO_HOST_AVX2 static double certain_sum(Double4 const& all, Half16 const& least) noexcept {
        unsigned const twice = smallest_twice(least);
        if (twice == 0x10000) {
            return 0.0;
        }
        int const field = static_cast<int>(twice >> static_cast<unsigned>(significant_bits));
        int const exponent = field == 0 ? 1 : field;
        constexpr int bias = significant_bits == 8 ? 127 : 15;
        constexpr int first = significant_bits == 8 ? 64 : 0; // smaller ones have subnormal squares
        auto const limit = std::bit_cast<double>(
            static_cast<std::uint64_t>(2 * (exponent - bias - significant_bits + 1) + 53 - 896
                                       + 1023)
            << 52U);
        double const sum =
            (all[0] + all[1]) + (all[2] + all[3]); // at least 2^-768 with an infinity or a NaN
        return exponent >= first && sum < limit && sum < 0x1p-768 ? sum * 0x1p896
                                                                  : __builtin_nan("");
    }

private:
    ZERO_HOST_AVX2 ExactSquares() noexcept
        : _sums{}, _minus_two(Half16{} - static_cast<std::uint16_t>(2)), _least{} {
        __asm__(""
                : "+x"(_minus_two)); // GCC would turn a known constant into a subtraction and shift
    }

    ZERO_HOST_AVX2 void add(T const* from) noexcept {
        Half16 x;
        __builtin_memcpy(&x, from, sizeof x);
        keep_larger(x * _minus_two);
        if constexpr (std::is_same_v<T, bfloat16>) {
            add_squares<0>((Float8)((Bits8)x << 16));
            add_squares<2>((Float8)((Bits8)x & 0xffff0000U));
        } else {
            Short8 half[2];
            __builtin_memcpy(&half, &x, sizeof half);
            add_squares<0>(__builtin_ia32_vcvtph2ps256(half[0]));
            add_squares<2>(__builtin_ia32_vcvtph2ps256(half[1]));
        }
    }

    template <int first>
    ZERO_HOST_AVX2 void add_squares(Float8 const& x) noexcept {
        auto const squares = (Words4)(x * x);
        if constexpr (has_spare_bits) {
            constexpr Int8 odd_only = {32, 3, 32, 3, 32, 3, 32, 3}; // the even ones become zero
            _sums[first] += (Double4)(squares << 29);
            _sums[first + 1] += (Double4)__builtin_ia32_psrlv8si((Int8)squares, odd_only);
        } else {
            _sums[first] += (Double4)((squares & 0xffffffffU) << 29);
            _sums[first + 1] += (Double4)(squares >> 3 & 0x0fffffffe0000000U);
        }
    }

    ZERO_HOST_AVX2 void keep_larger(Half16 const& x) noexcept {
#if defined(__clang__)
        _least = __builtin_elementwise_max(_least, x);
#else
        _least = (Half16)__builtin_ia32_pmaxuw256((Short16)_least, (Short16)x);
#endif
    }

    /// Returns twice the bits of the smallest non-zero magnitude; 2^16 if there is none.
    ZERO_HOST_AVX2 static unsigned smallest_twice(Half16 const& least) noexcept {
        Half16 const others = ~least;
        auto const low = (Half8)__builtin_ia32_phminposuw128(
            (Short8)__builtin_shufflevector(others, others, 0, 1, 2, 3, 4, 5, 6, 7));
        auto const high = (Half8)__builtin_ia32_phminposuw128(
            (Short8)__builtin_shufflevector(others, others, 8, 9, 10, 11, 12, 13, 14, 15));
        return 1U + (low[0] < high[0] ? low[0] : high[0]);
    }

    Double4 _sums[4];
    Half16 _minus_two;
    Half16 _least; ///< see `certain_sum`
};

/// Adds squares for `InspectLoop`. Most ranges of 16-bit elements need no anchor.
/// @tparam Exact `ExactSquares`, or the same with wider vectors
template <StorageType T, class Exact>
class ExactOrAnchored : public AnchoredSquares<T> {
public:
    static constexpr std::size_t most = Exact::elements;

    ZERO_HOST_AVX2 bool add(T const* from, std::size_t n, ops::Inspection& result) noexcept {
        if (n == most) {
            double const sum = Exact::sum(from);
            if (sum == sum) {
                result.add(sum);
                return true;
            }
        }
        return AnchoredSquares<T>::add(from, n, result);
    }
};

template <StorageType T>
using SquaresAvx2 =
    std::conditional_t<sizeof(T) == 2, ExactOrAnchored<T, ExactSquares<T>>, AnchoredSquares<T>>;

} // namespace ZERO_NAMESPACE::host::detail

#endif
