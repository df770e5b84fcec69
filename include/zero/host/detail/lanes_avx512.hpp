#pragma once

#include "../../core/detail/namespace.hpp"
#include "run_loop.hpp"
#include "squares_avx2.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

#if ZERO_HOST_HAS_AVX2

#if defined(__clang__)
inline constexpr unsigned short all_lanes = 0xffff;
#else
inline constexpr short all_lanes = -1;
#endif
inline constexpr int current_rounding = 4;

/// Marks a function that uses vectors of 64 bytes. Only code that runs after
/// `is_supported(InstructionSet::avx512)` returned true may call it.
#define ZERO_HOST_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma,f16c")))

/// `ExactSquares` with vectors of 64 bytes.
template <StorageType T>
class WideExactSquares {
public:
    static constexpr std::size_t elements = ExactSquares<T>::elements;

    ZERO_HOST_AVX512 static double sum(T const* from) noexcept {
        WideExactSquares squares;
        for (std::size_t i = 0; i < elements; i += 64) {
            prefetch_after(from + i, read_prefetch_bytes);
            prefetch_after(from + i + 32, read_prefetch_bytes);
            squares.add(from + i);
            squares.add(from + i + 32);
        }
        Double8 const all =
            (squares._sums[0] + squares._sums[1]) + (squares._sums[2] + squares._sums[3]);
        Double4 half[2];
        Half16 least[2];
        __builtin_memcpy(&half, &all, sizeof half);
        __builtin_memcpy(&least, &squares._least, sizeof least);
        return ExactSquares<T>::certain_sum(half[0] + half[1],
                                            least[0] < least[1] ? least[1] : least[0]);
    }

private:
    using Half32 = std::uint16_t __attribute__((vector_size(64)));
    using Int16 = std::int32_t __attribute__((vector_size(64)));
    using Bits16 = std::uint32_t __attribute__((vector_size(64)));
    using Float16 = float __attribute__((vector_size(64)));
    using Words8 = std::uint64_t __attribute__((vector_size(64)));
    using Double8 = double __attribute__((vector_size(64)));

    ZERO_HOST_AVX512 WideExactSquares() noexcept
        : _sums{}, _minus_two(Half32{} - static_cast<std::uint16_t>(2)), _least{} {
        __asm__("" : "+v"(_minus_two)); // as in ExactSquares
    }

    ZERO_HOST_AVX512 void add(T const* from) noexcept {
        Half32 x;
        __builtin_memcpy(&x, from, sizeof x);
        keep_larger(x * _minus_two);
        if constexpr (std::is_same_v<T, bfloat16>) {
            add_squares<0>((Float16)((Bits16)x << 16));
            add_squares<2>((Float16)((Bits16)x & 0xffff0000U));
        } else {
            Short16 half[2];
            __builtin_memcpy(&half, &x, sizeof half);
            add_squares<0>(widened(half[0]));
            add_squares<2>(widened(half[1]));
        }
    }

    ZERO_HOST_AVX512 static Float16 widened(Short16 const& half) noexcept {
        return __builtin_ia32_vcvtph2ps512_mask(half, Float16{}, all_lanes, current_rounding);
    }

    template <int first>
    ZERO_HOST_AVX512 void add_squares(Float16 const& x) noexcept {
        auto const squares = (Words8)(x * x);
        if constexpr (ExactSquares<T>::has_spare_bits) {
            constexpr Int16 odd_only = {32, 3, 32, 3, 32, 3, 32, 3, 32, 3, 32, 3, 32, 3, 32, 3};
            _sums[first] += (Double8)(squares << 29);
#if defined(__clang__)
            _sums[first + 1] += (Double8)__builtin_ia32_psrlv16si((Int16)squares, odd_only);
#else
            _sums[first + 1] += (Double8)__builtin_ia32_psrlv16si_mask(
                (Int16)squares, odd_only, Int16{}, static_cast<unsigned short>(all_lanes));
#endif
        } else {
            _sums[first] += (Double8)((squares & 0xffffffffU) << 29);
            _sums[first + 1] += (Double8)(squares >> 3 & 0x0fffffffe0000000U);
        }
    }

    ZERO_HOST_AVX512 void keep_larger(Half32 const& x) noexcept {
#if defined(__clang__)
        _least = __builtin_elementwise_max(_least, x);
#else
        using Short32 = std::int16_t __attribute__((vector_size(64)));
        _least = (Half32)__builtin_ia32_pmaxuw512_mask((Short32)_least, (Short32)x, Short32{}, ~0U);
#endif
    }

    Double8 _sums[4];
    Half32 _minus_two;
    Half32 _least;
};

/// The pack of 16 floats of a matrix product, and the squares of a norm. The rules of
/// lanes_avx2.hpp hold for it.
struct ProductLanes {
    static constexpr std::size_t size = 16;

    // NOLINTBEGIN(modernize-use-equals-default): a defaulted function would be one for the baseline
    ZERO_HOST_AVX512 ProductLanes() noexcept {}
    ZERO_HOST_AVX512 explicit ProductLanes(float x) noexcept
        : _value(Float16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}) {}
    ZERO_HOST_AVX512 ProductLanes(ProductLanes const& other) noexcept : _value(other._value) {}
    ZERO_HOST_AVX512 ProductLanes& operator=(ProductLanes const& other) noexcept {
        _value = other._value;
        return *this;
    }
    // NOLINTEND(modernize-use-equals-default)

    ZERO_HOST_AVX512 static ProductLanes load(float const* from) noexcept {
        ProductLanes result;
        __builtin_memcpy(&result._value, from, sizeof result._value);
        return result;
    }
    ZERO_HOST_AVX512 void store(float* to) const noexcept {
        __builtin_memcpy(to, &_value, sizeof _value);
    }
    ZERO_HOST_AVX512 static ProductLanes fma(ProductLanes const& a, ProductLanes const& b,
                                             ProductLanes const& c) noexcept {
        ProductLanes result;
        result._value = __builtin_ia32_vfmaddps512_mask(a._value, b._value, c._value, all_lanes,
                                                        current_rounding);
        return result;
    }
    ZERO_HOST_AVX512 static ProductLanes mul(ProductLanes const& a,
                                             ProductLanes const& b) noexcept {
        Float16 product = a._value * b._value;
        __asm__("" : "+v"(product)); // as in ops::detail::uncontracted
        ProductLanes result;
        result._value = product;
        return result;
    }

    template <StorageType T>
    using Squares = std::conditional_t<sizeof(T) == 2, ExactOrAnchored<T, WideExactSquares<T>>,
                                       AnchoredSquares<T>>;

private:
    using Float16 = float __attribute__((vector_size(64)));
    Float16 _value;
};

template <class Loop>
ZERO_HOST_AVX512 __attribute__((flatten, noinline)) inline void
run_avx512(Loop const& loop) noexcept {
    loop.template operator()<ProductLanes>();
}
#endif

/// Runs a loop that serves `ProductLanes`: `run` with them where the machine has them.
template <class Loop>
void run_widest(Loop const& loop) noexcept {
#if ZERO_HOST_HAS_AVX2
    if (instruction_set() == InstructionSet::avx512) {
        run_avx512(loop);
        return;
    }
#endif
    run(loop);
}

} // namespace ZERO_NAMESPACE::host::detail
