#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/detail/square_anchor.hpp"
#include "../../ops/exact_sum.hpp"
#include "../instruction_set.hpp"
#include "vectors_avx2.hpp"

#if ZERO_HOST_HAS_AVX2

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

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
                prefetch_after(from + i);
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

} // namespace ZERO_NAMESPACE::host::detail

#endif
