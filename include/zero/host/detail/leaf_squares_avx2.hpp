#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/exact_sum.hpp"
#include "../instruction_set.hpp"
#include "vectors_avx2.hpp"

#if ZERO_HOST_HAS_AVX2

#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// The squares of one leaf, summed in four lanes. Used by `Lanes<avx2>::leaf_sums`.
struct LeafSquares {
    template <StorageType T>
    ZERO_HOST_AVX2 explicit LeafSquares(T const* values) noexcept {
        static_assert(ops::leaf_elements == 64);
        prefetch_after(values);
        prefetch_after(values + ops::leaf_elements / 2);
        if constexpr (sizeof(T) == 4) {
            prefetch_after(values + ops::leaf_elements / 4);
            prefetch_after(values + ops::leaf_elements / 4 * 3);
        }
        Double4 low = {};
        Double4 high = {};
        add(values, low, high); // unrolled by hand, because GCC does not unroll loops at -O2
        add(values + 8, low, high);
        add(values + 16, low, high);
        add(values + 24, low, high);
        add(values + 32, low, high);
        add(values + 40, low, high);
        add(values + 48, low, high);
        add(values + 56, low, high);
        sums = low + high;
    }

    template <StorageType T>
    ZERO_HOST_AVX2 static void add(T const* values, Double4& low, Double4& high) noexcept {
        Float4 x_low;
        Float4 x_high;
        load(values, x_low);
        load(values + 4, x_high);
#if defined(__clang__)
        Double4 const wide_low = __builtin_convertvector(x_low, Double4);
        Double4 const wide_high = __builtin_convertvector(x_high, Double4);
#else
        Double4 const wide_low = __builtin_ia32_cvtps2pd256(x_low);
        Double4 const wide_high = __builtin_ia32_cvtps2pd256(x_high);
#endif
        low += wide_low * wide_low; // the products are exact, so a contraction changes nothing
        high += wide_high * wide_high;
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
              Short8& to) noexcept { // loads eight bytes; the upper half is zero
        std::uint64_t bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        to = (Short8)Long2{bits, 0};
    }

    Double4 sums; // l0 + l4, l1 + l5, l2 + l6, l3 + l7
};

} // namespace ZERO_NAMESPACE::host::detail

#endif
