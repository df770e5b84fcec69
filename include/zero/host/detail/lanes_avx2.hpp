#pragma once

#include "lanes.hpp"

#if ZERO_HOST_HAS_AVX2

#include <cstdint>

namespace zero::host::detail {

// Built from the compilers' vector types, because <immintrin.h> costs every user 0.3 s. Three things to know before changing it:
// - Every function that touches a vector carries the target attribute, or GCC splits the vector into halves before it inlines. It can
//   still be called from, though not inlined into, a function without the attribute: the loops are such functions, and `run` inlines them.
// - A vector of 32 bytes never crosses a call by value: its calling convention depends on the attribute of the caller. The class is
//   not trivially copyable for that reason alone: the language then passes it by address everywhere, also in a functor that is not inlined.
// - Nothing here may be used before `is_supported(InstructionSet::avx2)` said yes.
#define ZERO_HOST_AVX2 __attribute__((target("avx2,fma,f16c")))

using Float8 = float __attribute__((vector_size(32)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using Bits8 = std::uint32_t __attribute__((vector_size(32)));
using Half8 = std::uint16_t __attribute__((vector_size(16)));
using Short8 = std::int16_t __attribute__((vector_size(16)));
using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));

template <>
struct Lanes<InstructionSet::avx2> {
    static constexpr std::size_t size = 8;

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
    ZERO_HOST_AVX2 Lanes(float value) noexcept : _value(Float8{value, value, value, value, value, value, value, value}) {}
    ZERO_HOST_AVX2 Lanes(Lanes const& other) noexcept : _value(other._value) {}
    ZERO_HOST_AVX2 Lanes& operator=(Lanes const& other) noexcept {
        _value = other._value;
        return *this;
    }

    ZERO_HOST_AVX2 static Lanes load(float const* from) noexcept {
        Lanes result;
        __builtin_memcpy(&result._value, from, sizeof result._value);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes load(bfloat16 const* from) noexcept {
        Half8 half;
        __builtin_memcpy(&half, from, sizeof half);
        Lanes result;
        result._value = (Float8)(__builtin_convertvector(half, Bits8) << 16);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes load(float16 const* from) noexcept {
        Short8 half;
        __builtin_memcpy(&half, from, sizeof half);
        Lanes result;
        result._value = __builtin_ia32_vcvtph2ps256(half);
        return result;
    }

    ZERO_HOST_AVX2 void store(float* to) const noexcept { __builtin_memcpy(to, &_value, sizeof _value); }
    ZERO_HOST_AVX2 void store(bfloat16* to) const noexcept {
        Bits8 const bits = (Bits8)_value;
        Bits8 const is_nan = (Bits8)(_value != _value);
        Bits8 const rounded = bits + ((bits >> 16 & 1U) + 0x7fffU);
        Half8 const half = __builtin_convertvector(((rounded & ~is_nan) | ((bits | 0x00400000U) & is_nan)) >> 16, Half8);
        __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
    }
    ZERO_HOST_AVX2 void store(float16* to) const noexcept {
        Short8 const half = (Short8)__builtin_ia32_vcvtps2ph256(_value, 0); // to nearest even, whatever the control register says
        __builtin_memcpy(static_cast<void*>(to), &half, sizeof half);
    }

    ZERO_HOST_AVX2 Lanes with_canonical_nan() const noexcept {
        Lanes result;
        Bits8 const is_nan = (Bits8)(_value != _value);
        result._value = (Float8)(((Bits8)_value & ~is_nan) | (canonical_nan & is_nan));
        return result;
    }

    ZERO_HOST_AVX2 static Lanes fma(Lanes const& a, Lanes const& b, Lanes const& c) noexcept {
        Lanes result;
        result._value = __builtin_ia32_vfmaddps256(a._value, b._value, c._value);
        return result;
    }
    ZERO_HOST_AVX2 static Lanes mul(Lanes const& a, Lanes const& b) noexcept {
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
        Lanes result;
        result._value = a._value * b._value;
#if !defined(__clang__)
        __asm__("" : "+x"(result._value)); // as in ops::detail::uncontracted
#endif
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
        result._value = (Float8)(((Int8)a._value & mask.bits) | ((Int8)b._value & ~mask.bits));
        return result;
    }

    /// Sums of squares of four leaves, in the order that `ops::Inspection` documents. Not finite where an element is not.
    template <StorageType T>
    ZERO_HOST_AVX2 static void leaf_sums(T const* values, double (&sums)[4]) noexcept {
        Double4 half[4]; // l0 + l4, l1 + l5, l2 + l6, l3 + l7 of each leaf
        for (std::size_t leaf = 0; leaf < 4; ++leaf) {
            Double4 low = {};
            Double4 high = {};
            for (std::size_t i = 0; i < ops::leaf_elements; i += size) {
                Float8 const x = load(values + leaf * ops::leaf_elements + i)._value;
                Double4 const x_low = __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), Double4);
                Double4 const x_high = __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), Double4);
                low += x_low * x_low; // the products are exact, so a contraction changes nothing
                high += x_high * x_high;
            }
            half[leaf] = low + high;
        }
        Double4 const first = __builtin_shufflevector(half[0], half[1], 0, 4, 2, 6) + __builtin_shufflevector(half[0], half[1], 1, 5, 3, 7);
        Double4 const second = __builtin_shufflevector(half[2], half[3], 0, 4, 2, 6) + __builtin_shufflevector(half[2], half[3], 1, 5, 3, 7);
        Double4 const all = __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
        __builtin_memcpy(sums, &all, sizeof all);
    }

    /// Calls a functor of the user's. Clang flattens one level only: without this it would leave a longer functor out of line.
    template <class Functor, class... Arguments>
    ZERO_HOST_AVX2 __attribute__((flatten)) static void call(Functor const& functor, Arguments&... arguments) noexcept {
        functor(arguments...);
    }

private:
    Float8 _value;
};

static_assert(ops::Number<Lanes<InstructionSet::avx2>>);

/// Runs `loop` over 8 lanes: `flatten` inlines all that it calls into the one function that has the target.
template <class Loop>
ZERO_HOST_AVX2 __attribute__((flatten, noinline)) inline void run_avx2(Loop const& loop) noexcept {
    loop.template operator()<Lanes<InstructionSet::avx2>>();
}

#undef ZERO_HOST_AVX2

} // namespace zero::host::detail

#endif
