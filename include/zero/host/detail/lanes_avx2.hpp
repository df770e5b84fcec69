#pragma once

#include "../../core/detail/namespace.hpp"
#include "lanes.hpp"

#if ZERO_HOST_HAS_AVX2

#include "random_bits_avx2.hpp"
#include "squares_avx2.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

// The packs of 8 floats for AVX2. They use the compilers' vector types, because <immintrin.h> costs
// every translation unit 0.3 s. Rules for changes:
// - Every function that uses a vector has the target attribute; otherwise GCC splits the vector
//   into halves before it inlines. A function without the attribute can still call it but not
//   inline it. The loops are such functions, and `run` inlines them.
// - A vector of 32 bytes is never passed by value, because its calling convention depends on the
//   attribute of the caller. For that reason alone the class is not trivially copyable: the
//   language then passes it by address everywhere, even in a functor that is not inlined.
// - GCC 12 splits `__builtin_convertvector` to 32 bytes into halves, so the instruction is named
//   where it is on a fast path.
// - Nothing here may be called before `is_supported(InstructionSet::avx2)` returned true.
template <>
struct Lanes<InstructionSet::avx2> {
    static constexpr std::size_t size = 8;
    static constexpr bool fuses = true; ///< whether `fma` is one instruction
    using RandomBits = RandomBitsAvx2;

    // NOLINTBEGIN(modernize-use-equals-default): a defaulted function would be one for the baseline
    struct Mask {
        using Number = Lanes;
        ZERO_HOST_AVX2 Mask() noexcept {}
        ZERO_HOST_AVX2 Mask(Mask const& other) noexcept : bits(other.bits) {}
        ZERO_HOST_AVX2 Mask& operator=(Mask const& other) noexcept {
            bits = other.bits;
            return *this;
        }
        Int8 bits; // all ones where the condition holds
    };

    ZERO_HOST_AVX2 Lanes() noexcept {}
    ZERO_HOST_AVX2 Lanes(float value) noexcept // NOLINT(google-explicit-constructor):
                                               // functors mix hyper-parameters and packs
        : _value(Float8{value, value, value, value, value, value, value, value}) {}
    ZERO_HOST_AVX2 Lanes(Lanes const& other) noexcept : _value(other._value) {}
    ZERO_HOST_AVX2 Lanes& operator=(Lanes const& other) noexcept {
        _value = other._value;
        return *this;
    }
    // NOLINTEND(modernize-use-equals-default)

    ZERO_HOST_AVX2 static Lanes load(float const* from) noexcept {
        Lanes result;
        __builtin_memcpy(&result._value, from, sizeof result._value);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes load(bfloat16 const* from) noexcept {
        Half8 half;
        __builtin_memcpy(&half, from, sizeof half);
        Lanes result;
#if defined(__clang__)
        result._value = (Float8)(__builtin_convertvector(half, Bits8) << 16);
#else
        result._value = (Float8)(__builtin_ia32_pmovzxwd256((Short8)half) << 16);
#endif
        return result;
    }
    ZERO_HOST_AVX2 static Lanes load(float16 const* from) noexcept {
        Short8 half;
        __builtin_memcpy(&half, from, sizeof half);
        Lanes result;
        result._value = __builtin_ia32_vcvtph2ps256(half);
        return result;
    }

    ZERO_HOST_AVX2 void store(float* to) const noexcept {
        __builtin_memcpy(to, &_value, sizeof _value);
    }
    ZERO_HOST_AVX2 void store(float16* to) const noexcept {
        Short8 const half = (Short8)__builtin_ia32_vcvtps2ph256(
            _value, 0); // to nearest even, whatever the control register says
        __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
    }

    /// Stores a pack whose only NaN is the canonical one, which rounding to bfloat16 does not
    /// change.
    template <StorageType T>
    ZERO_HOST_AVX2 void store_number(T* to) const noexcept {
        if constexpr (std::is_same_v<T, bfloat16>) {
            Half8 const half = __builtin_convertvector(rounded() >> 16, Half8);
            __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
        } else {
            store(to);
        }
    }

    /// `store_number` past the caches, to an address that is a multiple of the bytes stored.
    template <StorageType T>
    ZERO_HOST_AVX2 void stream_number(T* to) const noexcept {
        if constexpr (std::is_same_v<T, float>) {
#if defined(__clang__)
            __builtin_nontemporal_store(_value, reinterpret_cast<Float8*>(to));
#else
            __builtin_ia32_movntps256(to, _value);
#endif
        } else {
            LongLong2 half;
            store_number(reinterpret_cast<T*>(&half));
            stream_word(half, to);
        }
    }

    /// Stores this pack and the next one; bfloat16 takes half the instructions of two stores.
    /// `past_caches` needs an address that is a multiple of the bytes stored. `are_numbers` means
    /// that the only NaN is the canonical one; other NaNs keep their upper bits and become quiet.
    template <bool past_caches, bool are_numbers, StorageType T>
    ZERO_HOST_AVX2 void store_with(Lanes const& next, T* to) const noexcept {
        if constexpr (std::is_same_v<T, bfloat16>) {
            constexpr int unordered = 3;
            if (!are_numbers
                && __builtin_ia32_movmskps256(
                       __builtin_ia32_cmpps256(_value, next._value, unordered))
                       != 0) {
                with_quiet_nan().template store_with<past_caches, true>(next.with_quiet_nan(), to);
                return;
            }
            // packs per 16 bytes: the second quarter holds the first half of the next pack
            Long4 const packed = (Long4)__builtin_ia32_packusdw256((Int8)(rounded() >> 16),
                                                                   (Int8)(next.rounded() >> 16));
            store_bits<past_caches>(__builtin_shufflevector(packed, packed, 0, 2, 1, 3), to);
        } else if constexpr (past_caches) {
            stream_number(to);
            next.stream_number(to + size);
        } else {
            store(to);
            next.store(to + size);
        }
    }

    /// Loads two packs with the elements of even and of odd index, which takes no shuffle.
    ZERO_HOST_AVX2 static void load_alternate(bfloat16 const* from, Lanes& even,
                                              Lanes& odd) noexcept {
        Bits8 both;
        __builtin_memcpy(&both, from, sizeof both);
        even._value = (Float8)(both << 16);
        odd._value = (Float8)(both & 0xffff0000U);
    }

    /// Makes two consecutive packs of the elements of even and of odd index.
    ZERO_HOST_AVX2 static void put_in_order(Lanes& even, Lanes& odd) noexcept {
        Float8 const low =
            __builtin_shufflevector(even._value, odd._value, 0, 8, 1, 9, 4, 12, 5, 13);
        Float8 const high =
            __builtin_shufflevector(even._value, odd._value, 2, 10, 3, 11, 6, 14, 7, 15);
        even._value = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11);
        odd._value = __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
    }

    /// `store_with` for the elements of even index, of numbers; `odd` holds the others.
    template <bool past_caches>
    ZERO_HOST_AVX2 void store_alternate(Lanes const& odd, bfloat16* to) const noexcept {
        store_bits<past_caches>((Long4)(rounded() >> 16 | (odd.rounded() & 0xffff0000U)), to);
    }

    /// Prefetches. Always inline, because GCC drops calls of a function without other effects.
    template <StorageType T>
    [[gnu::always_inline]] static void prefetch(T const* from) noexcept {
        prefetch_after(from);
    }

    /// Orders streamed stores before all later stores, as a thread that waits for this one expects.
    static void finish_streams() noexcept { __builtin_ia32_sfence(); }

    /// Loads floats that are stored in parts; bit i of `rounded_up` belongs to lane i.
    ZERO_HOST_AVX2 static Lanes join(bfloat16 const* halves, std::uint16_t const* remainders,
                                     unsigned rounded_up) noexcept {
        Lanes const upper = load(halves);
        Lanes const lower = load(
            reinterpret_cast<bfloat16 const*>(remainders)); // in its upper half, to be shifted down
        Bits8 const bit = Bits8{1, 2, 4, 8, 16, 32, 64, 128};
        Int8 const is_up =
            (Int8)(((Bits8{} + rounded_up) & bit) == bit); // -1 where it was rounded up
        Lanes result;
        result._value =
            (Float8)(((Bits8)upper._value | (Bits8)lower._value >> 16) + ((Bits8)is_up << 16));
        return result;
    }

    /// Stores, in parts, a pack whose only NaN is the canonical one. @return the bits of
    /// `rounded_up`
    ZERO_HOST_AVX2 unsigned split(bfloat16* halves, std::uint16_t* remainders) const noexcept {
        Bits8 const bits = (Bits8)_value;
        Bits8 const whole = rounded();
        Half8 const half = __builtin_convertvector(whole >> 16, Half8);
        Half8 const remainder = __builtin_convertvector(bits & 0xffffU, Half8);
        __builtin_memcpy(static_cast<void*>(halves), &half, sizeof half);
        __builtin_memcpy(remainders, &remainder, sizeof remainder);
        return static_cast<unsigned>(__builtin_ia32_movmskps256(
            (Float8)((whole ^ bits) << 15))); // the last bit of the half, to the sign
    }

    /// Returns the larger of a finite magnitude and `ops::finite_magnitude(value)`, per element.
    ZERO_HOST_AVX2 static Lanes larger_magnitude(Lanes const& magnitude,
                                                 Lanes const& value) noexcept {
        Int8 const other = (Int8)value._value & 0x7fffffff;
        Lanes result;
        result._value =
            (Float8)larger((Int8)magnitude._value,
                           other & (other < 0x7f800000)); // bits are ordered as magnitudes are
        return result;
    }

    /// Returns the largest magnitude of each of 8 blocks of 64 elements. NaN is above infinity.
    template <StorageType T>
    ZERO_HOST_AVX2 static Lanes largest_of_blocks(T const* from) noexcept {
        using Magnitudes = std::conditional_t<sizeof(T) == 2, Short16, Int8>;
        constexpr std::size_t together = sizeof(Magnitudes) / sizeof(T);
        Magnitudes largest[8];
        // A loop: GCC would mix the loads of unrolled blocks, which slows down memory.
        for (std::size_t block = 0; block < 8; ++block) {
            Magnitudes most = magnitudes<Magnitudes>(from + 64 * block);
            ZERO_HOST_UNROLL(8)
            for (std::size_t i = together; i < 64; i += together) {
                most = larger(most, magnitudes<Magnitudes>(from + 64 * block + i));
            }
            largest[block] = most;
        }
        // Each step halves what is left of a block and puts those of two blocks side by side.
        ZERO_HOST_UNROLL(4)
        for (std::size_t block = 0; block < 4; ++block) {
            Long4 const a = (Long4)largest[block];
            Long4 const b = (Long4)largest[block + 4];
            largest[block] = larger((Magnitudes)__builtin_shufflevector(a, b, 0, 1, 4, 5),
                                    (Magnitudes)__builtin_shufflevector(a, b, 2, 3, 6, 7));
        }
        Lanes result;
        if constexpr (sizeof(T) == 2) {
            Int8 const first = (Int8)halved_words(largest[0], largest[1]);
            Int8 const second = (Int8)halved_words(largest[2], largest[3]);
            Long4 const all = (Long4)larger(
                (Short16)__builtin_shufflevector(first, second, 0, 8, 1, 9, 4, 12, 5, 13),
                (Short16)__builtin_shufflevector(first, second, 2, 10, 3, 11, 6, 14, 7, 15));
            Short16 const words =
                larger((Short16)all, (Short16)__builtin_shufflevector(all, all, 1, 0, 3, 2));
            Long4 const ordered = __builtin_shufflevector((Long4)words, (Long4)words, 0, 2, 0, 2);
            T halves[16];
            __builtin_memcpy(static_cast<void*>(halves), &ordered, sizeof ordered);
            return load(static_cast<T const*>(halves));
        } else {
            Long4 const first = (Long4)halved(largest[0], largest[1]);
            Long4 const second = (Long4)halved(largest[2], largest[3]);
            result._value =
                (Float8)larger((Int8)__builtin_shufflevector(first, second, 0, 4, 2, 6),
                               (Int8)__builtin_shufflevector(first, second, 1, 5, 3, 7));
            return result;
        }
    }

    /// `ops::code_scale` per element.
    ZERO_HOST_AVX2 static Lanes code_scales(Lanes const& largest, float levels) noexcept {
        Int8 const scale = (Int8)(((Bits8)(largest._value / levels) + 0x8000U) & 0xffff0000U);
        Int8 const is_finite = (Int8)largest._value < 0x7f800000;
        Int8 const least = Int8{} + 0x00800000;
        Lanes result;
        result._value = (Float8)((larger(scale, least) & is_finite) | (~is_finite & 0x7fc00000));
        return result;
    }

    /// Rounds 32 numbers to integers of 8 bits. @tparam alternate as `load_alternate` loads them
    template <bool alternate>
    ZERO_HOST_AVX2 static void store_codes(Lanes const (&numbers)[4], std::uint8_t* to) noexcept {
        store_bytes<alternate>(code_words<alternate>(numbers[0], numbers[1]),
                               code_words<alternate>(numbers[2], numbers[3]), to);
    }

    /// Rounds 32 numbers to integers in the lower halves of bytes, and 32 in the upper halves.
    template <bool alternate>
    ZERO_HOST_AVX2 static void store_codes(Lanes const (&low)[4], Lanes const (&high)[4],
                                           std::uint8_t* to) noexcept {
        Short16 words[2]; // from -128 to 127
        for (std::size_t i = 0; i < 2; ++i) {
            words[i] = (code_words<alternate>(low[2 * i], low[2 * i + 1]) & 0xf)
                       | code_words<alternate>(high[2 * i], high[2 * i + 1]) << 4;
        }
        store_bytes<alternate>(words[0], words[1], to);
    }

    /// Loads integers of 8 bits.
    ZERO_HOST_AVX2 static Lanes load_codes(std::uint8_t const* from) noexcept {
        Lanes result;
        result._value = converted(load_bytes(from));
        return result;
    }

    /// Loads integers of 4 bits from the lower and the upper halves of bytes.
    ZERO_HOST_AVX2 static void load_codes(std::uint8_t const* from, Lanes& low,
                                          Lanes& high) noexcept {
        Int8 const bytes = load_bytes(from);
        low._value = converted(bytes << 28 >> 28);
        high._value = converted(bytes >> 4);
    }

    /// `ops::keep_from_zero` per element.
    ZERO_HOST_AVX2 static Lanes keep_from_zero(Lanes const& scaled, Lanes const& value) noexcept {
        Int8 const magnitude = (Int8)scaled._value & 0x7fffffff;
        Int8 const least = ((Int8)value._value << 1 != 0)
                           & 0x33800000; // only zeros have no bit other than the sign
        Lanes result;
        result._value = (Float8)(larger(magnitude, least) | ((Int8)scaled._value & ~0x7fffffff));
        return result;
    }

    /// Rounds a pack whose only NaN is the canonical one stochastically, and stores it.
    ZERO_HOST_AVX2 void store_stochastic(bfloat16* to, RandomBits const& random) const noexcept {
        Bits8 const bits = (Bits8)_value;
        Int8 const is_beyond = (Int8)(bits & 0x7fffffffU) > 0x7f7f0000; // then rounded to nearest
        Bits8 added = random.bits >> 16;
        if (__builtin_ia32_movmskps256((Float8)is_beyond) != 0) {
            added =
                (added & ~(Bits8)is_beyond) | (((bits >> 16 & 1U) + 0x7fffU) & (Bits8)is_beyond);
        }
        Half8 const half = __builtin_convertvector((bits + added) >> 16, Half8);
        __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
    }
    ZERO_HOST_AVX2 void store_stochastic(float16* to, RandomBits const& random) const noexcept {
        Bits8 const bits = (Bits8)_value;
        Int8 const magnitude = (Int8)(bits & 0x7fffffffU);
        Int8 const is_special =
            (magnitude > 0x477fe000)
            | ((magnitude < 0x38800000) & (magnitude != 0)); // beyond the largest, or subnormal
        if (__builtin_ia32_movmskps256((Float8)is_special) == 0) {
            Short8 const half = (Short8)__builtin_ia32_vcvtps2ph256(
                (Float8)(bits + (random.bits >> 19)), 3); // truncated
            __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
        } else {
            for (std::size_t i = 0; i < size; ++i) {
                to[i] = ops::round_stochastically<float16>(_value[i], random.bits[i]);
            }
        }
    }

    /// `ops::round_place` per element.
    ZERO_HOST_AVX2 void store_stochastic(power8* to, RandomBits const& random) const noexcept {
        Int8 const below = __builtin_ia32_cvttps2dq256(_value + 128.0F) - 128;
        Float8 const chance = converted((Int8)(random.bits >> 8)) * 0x1p-24F;
        Int8 const code = below - (Int8)(chance < _value - converted(below)); // true is -1
        Short16 const halves = (Short16)__builtin_ia32_packssdw256(code, code);
        Int8 const bytes = (Int8)__builtin_ia32_packsswb256(halves, halves);
        std::int32_t const both[2] = {bytes[0], bytes[4]};
        __builtin_memcpy(static_cast<void*>(to), both, sizeof both);
    }

    ZERO_HOST_AVX2 Lanes with_canonical_nan() const noexcept {
        constexpr float nan = std::bit_cast<float>(canonical_nan);
        Lanes result;
        result._value = __builtin_ia32_blendvps256(
            _value, Float8{nan, nan, nan, nan, nan, nan, nan, nan}, (Float8)(_value != _value));
        return result;
    }

    /// Returns the values of a pack whose only NaN is the canonical one, rounded to `T`.
    template <StorageType T>
    ZERO_HOST_AVX2 Lanes rounded_to() const noexcept {
        Lanes result(*this);
        if constexpr (std::is_same_v<T, bfloat16>) {
            result._value = (Float8)(rounded() & 0xffff0000U);
        } else if constexpr (std::is_same_v<T, float16>) {
            result._value =
                __builtin_ia32_vcvtph2ps256((Short8)__builtin_ia32_vcvtps2ph256(_value, 0));
        }
        return result;
    }

    ZERO_HOST_AVX2 static Lanes fma(Lanes const& a, Lanes const& b, Lanes const& c) noexcept {
        Lanes result;
        result._value = __builtin_ia32_vfmaddps256(a._value, b._value, c._value);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes mul(Lanes const& a, Lanes const& b) noexcept {
        Float8 product = a._value * b._value;
        __asm__("" : "+x"(product)); // as in ops::detail::uncontracted
        Lanes result;
        result._value = product;
        return result;
    }
    ZERO_HOST_AVX2 static Lanes add(Lanes const& a, Lanes const& b) noexcept {
        Lanes result;
        result._value = a._value + b._value;
        return result;
    }
    ZERO_HOST_AVX2 static Lanes sub(Lanes const& a, Lanes const& b) noexcept {
        Lanes result;
        result._value = a._value - b._value;
        return result;
    }
    ZERO_HOST_AVX2 static Lanes div(Lanes const& a, Lanes const& b) noexcept {
        Lanes result;
        result._value = a._value / b._value;
        return result;
    }
    ZERO_HOST_AVX2 static Lanes root(Lanes const& a) noexcept {
        Lanes result;
        result._value = __builtin_ia32_sqrtps256(a._value);
        return result;
    }
    ZERO_HOST_AVX2 static Mask less(Lanes const& a, Lanes const& b) noexcept {
        Mask result;
        result.bits = (Int8)(a._value < b._value);
        return result;
    }
    ZERO_HOST_AVX2 static Mask less_equal(Lanes const& a, Lanes const& b) noexcept {
        Mask result;
        result.bits = (Int8)(a._value <= b._value);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes select(Mask const& mask, Lanes const& a, Lanes const& b) noexcept {
        Lanes result;
        result._value = __builtin_ia32_blendvps256(b._value, a._value, (Float8)mask.bits);
        return result;
    }

    template <StorageType T>
    using Squares = SquaresAvx2<T>;

    /// Calls a user's functor. Clang flattens one level only: without this attribute it would leave
    /// a longer functor out of line.
    template <class Functor, class... Arguments>
    ZERO_HOST_AVX2 __attribute__((flatten)) static void call(Functor const& functor,
                                                             Arguments&... arguments) noexcept {
        functor(arguments...);
    }

private:
    using Char16 = char __attribute__((vector_size(16)));

    /// Returns the nearest integers, of two the even one.
    ZERO_HOST_AVX2 Int8 nearest() const noexcept {
        return (Int8)__builtin_ia32_cvtps2dq256(_value);
    }

    /// Returns the nearest integers of two packs: of alternate ones in order, otherwise in the
    /// order of `packssdw`.
    template <bool alternate>
    ZERO_HOST_AVX2 static Short16 code_words(Lanes const& a, Lanes const& b) noexcept {
        if constexpr (alternate) {
            return (Short16)((a.nearest() & 0xffff) | b.nearest() << 16);
        } else {
            return (Short16)__builtin_ia32_packssdw256(a.nearest(), b.nearest());
        }
    }

    /// Stores the lower bytes of what two calls of `code_words` made, in order.
    template <bool alternate>
    ZERO_HOST_AVX2 static void store_bytes(Short16 const& first, Short16 const& second,
                                           std::uint8_t* to) noexcept {
        Int8 const packed = (Int8)__builtin_ia32_packsswb256(first, second);
        Int8 bytes;
        if constexpr (alternate) {
            bytes = __builtin_shufflevector(packed, packed, 0, 1, 4, 5, 2, 3, 6, 7);
        } else {
            bytes = __builtin_shufflevector(packed, packed, 0, 4, 1, 5, 2, 6, 3, 7);
        }
        __builtin_memcpy(to, &bytes, sizeof bytes);
    }

    ZERO_HOST_AVX2 static Int8 load_bytes(std::uint8_t const* from) noexcept {
#if defined(__clang__)
        using Char8 = signed char __attribute__((vector_size(8)));
        Char8 bytes;
        __builtin_memcpy(&bytes, from, sizeof bytes);
        return __builtin_convertvector(bytes, Int8);
#else
        LongLong2 bytes = {};
        __builtin_memcpy(&bytes, from, 8);
        return (Int8)__builtin_ia32_pmovsxbd256((Char16)bytes);
#endif
    }

    ZERO_HOST_AVX2 static Float8 converted(Int8 const& integers) noexcept {
#if defined(__clang__)
        return __builtin_convertvector(integers, Float8);
#else
        return __builtin_ia32_cvtdq2ps256(integers);
#endif
    }

    template <bool past_caches>
    ZERO_HOST_AVX2 static void store_bits(Long4 const& bits, bfloat16* to) noexcept {
        if constexpr (!past_caches) {
            __builtin_memcpy(static_cast<void*>(to), &bits, sizeof bits);
        } else {
#if defined(__clang__)
            __builtin_nontemporal_store(bits, reinterpret_cast<Long4*>(to));
#else
            __builtin_ia32_movntdq256(reinterpret_cast<Long4*>(to), bits);
#endif
        }
    }

    /// Returns the bits of the value rounded to bfloat16, in the upper halves.
    ZERO_HOST_AVX2 Bits8 rounded() const noexcept {
        Bits8 const bits = (Bits8)_value;
        return bits + ((bits >> 16 & 1U) + 0x7fffU);
    }

    /// Returns the pack with NaNs as `round_to_bfloat16` makes them. Rounding would carry other
    /// NaNs into infinity or -0.
    ZERO_HOST_AVX2 Lanes with_quiet_nan() const noexcept {
        Lanes result;
        result._value = __builtin_ia32_blendvps256(
            _value, (Float8)(((Bits8)_value & 0xffff0000U) | 0x00400000U),
            (Float8)(_value != _value));
        return result;
    }

    template <class V>
    ZERO_HOST_AVX2 static V larger(V const& a, V const& b) noexcept {
        return a < b ? b : a; // one instruction
    }

    /// Returns bits that are ordered as the magnitudes of elements are.
    template <class V, StorageType T>
    ZERO_HOST_AVX2 static V magnitudes(T const* from) noexcept {
        V bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        return bits & (sizeof(T) == 2 ? 0x7fff : 0x7fffffff);
    }

    ZERO_HOST_AVX2 static Int8 halved(Int8 const& a, Int8 const& b) noexcept {
        return larger(__builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13),
                      __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15));
    }
    ZERO_HOST_AVX2 static Short16 halved_words(Short16 const& a, Short16 const& b) noexcept {
        return larger(
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27),
            __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15,
                                    31));
    }

    Float8 _value;
};

static_assert(ops::Number<Lanes<InstructionSet::avx2>>);

} // namespace ZERO_NAMESPACE::host::detail

#endif
