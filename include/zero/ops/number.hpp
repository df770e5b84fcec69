#pragma once

#include "host_device.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

// The library promises equal bits between stages, compilers, instruction sets and devices. Flags that let a compiler change the value
// of an expression break that promise without any message, so they are refused where they can be seen.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)                                                \
    || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "zero: -ffast-math and its parts change results and hide infinities; compile without them."
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "zero: float arithmetic is done in a wider type here (x87?); compile with SSE arithmetic (-msse2 -mfpmath=sse)."
#endif

/// The arithmetic of element-wise functors. A functor is written once over a number type `F` and runs on `float` (device, scalar code) and
/// on packs of lanes (host loops). Every function rounds once, to nearest even; none is ever fused with another, whatever the flags.
namespace zero::ops {

/// @brief A number that holds several floats side by side; the functions below are its static members.
template <class F>
concept Pack = requires(F const& x, typename F::Mask const& mask) {
    typename F::Mask;
    F(0.0F);
    { F::fma(x, x, x) } -> std::same_as<F>;
    { F::mul(x, x) } -> std::same_as<F>;
    { F::add(x, x) } -> std::same_as<F>;
    { F::sub(x, x) } -> std::same_as<F>;
    { F::div(x, x) } -> std::same_as<F>;
    { F::root(x) } -> std::same_as<F>;
    { F::less(x, x) } -> std::same_as<typename F::Mask>;
    { F::less_equal(x, x) } -> std::same_as<typename F::Mask>;
    { F::select(mask, x, x) } -> std::same_as<F>;
};

/// @brief What an optimizer functor computes with: `float`, or a pack of floats that the functions of this header accept.
///
/// A functor may copy and assign numbers, make one from a `float`, and call the functions of this header; nothing else.
template <class F>
concept Number = std::same_as<F, float> || Pack<F>;

namespace detail {

/// The number type of an expression with these operands: the pack if there is one (a `float` beside it is repeated in every lane).
template <class A, class... Others>
struct Common {
    using type = A;
};
template <class... Others>
    requires(sizeof...(Others) > 0)
struct Common<float, Others...> : Common<Others...> {};

template <class... Operands>
using CommonNumber = typename Common<Operands...>::type;

/// Keeps a product from being contracted with a later sum. Where the hardware has a fused multiply-add, GCC does that across statements by
/// default and clang with a flag; an empty assembly statement that "changes" the product ends the expression and costs no instruction.
template <std::floating_point T>
inline T uncontracted(T product) noexcept {
#if defined(__GNUC__)
#if defined(__FMA__) || defined(__FMA4__)
    __asm__("" : "+x"(product));
#elif defined(__aarch64__)
    __asm__("" : "+w"(product));
#elif !defined(__x86_64__)
    __asm__("" : "+m"(product));
#endif
#endif
    return product;
}

/// a * b + c with one rounding, in double arithmetic: the product of two floats is exact there, the sum is rounded to odd (inexact results
/// get an odd last bit), and rounding an odd result of 53 bits to 24 bits or fewer is the same as rounding the exact one.
constexpr float fma_by_rounding_to_odd(float a, float b, float c) noexcept {
    double const product = static_cast<double>(a) * static_cast<double>(b);
    double const addend = static_cast<double>(c);
    double const sum = product + addend;
    double const part = sum - product;
    double const error = (product - (sum - part)) + (addend - part); // exact: sum + error = product + addend
    auto bits = std::bit_cast<std::uint64_t>(sum);
    bool const inexact = error < 0.0 || error > 0.0; // false for the NaN that an infinity leaves
    if (inexact && (bits & 1U) == 0) {
        bits = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
    }
    return static_cast<float>(std::bit_cast<double>(bits));
}

} // namespace detail

/// @brief Operands of one operation: floats, or packs of one type, or a mixture of the two.
template <class... Operands>
concept Operable = (Number<Operands> && ...)
                   && ((std::same_as<Operands, float> || std::same_as<Operands, detail::CommonNumber<Operands...>>)&&...);

/// @brief a * b + c, rounded once.
template <class A, class B, class C>
requires Operable<A, B, C> ZERO_HOST_DEVICE inline detail::CommonNumber<A, B, C> fma(A const& a, B const& b, C const& c) noexcept {
    using F = detail::CommonNumber<A, B, C>;
    if constexpr (!std::same_as<F, float>) {
        return F::fma(a, b, c);
    } else {
#if defined(__CUDA_ARCH__)
        return __fmaf_rn(a, b, c);
#elif defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
        return __builtin_fmaf(a, b, c);
#else
        return detail::fma_by_rounding_to_odd(a, b, c);
#endif
    }
}

/// @brief a * b.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> mul(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::mul(a, b);
    } else {
#if defined(__CUDA_ARCH__)
        return __fmul_rn(a, b);
#else
        return detail::uncontracted(a * b);
#endif
    }
}

/// @brief a + b.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> add(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::add(a, b);
    } else {
#if defined(__CUDA_ARCH__)
        return __fadd_rn(a, b);
#else
        return a + b;
#endif
    }
}

/// @brief a - b.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> sub(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::sub(a, b);
    } else {
#if defined(__CUDA_ARCH__)
        return __fsub_rn(a, b);
#else
        return a - b;
#endif
    }
}

/// @brief a / b.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> div(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::div(a, b);
    } else {
#if defined(__CUDA_ARCH__)
        return __fdiv_rn(a, b);
#else
        return a / b;
#endif
    }
}

/// @brief The square root; NaN below -0.
template <Number F>
ZERO_HOST_DEVICE inline F root(F const& x) noexcept {
    if constexpr (!std::same_as<F, float>) {
        return F::root(x);
    } else {
#if defined(__CUDA_ARCH__)
        return __fsqrt_rn(x);
#else
        return __builtin_sqrtf(x);
#endif
    }
}

/// @brief a < b, in every lane: a `bool`, or the pack's mask. False where an operand is NaN.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline auto less(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::less(a, b);
    } else {
        return a < b;
    }
}

/// @brief a <= b, in every lane: a `bool`, or the pack's mask. False where an operand is NaN.
template <class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline auto less_equal(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::less_equal(a, b);
    } else {
        return a <= b;
    }
}

/// @brief The first value where the condition holds, the second elsewhere. Both are evaluated; no lane is computed with.
template <class Condition, class A, class B>
requires Operable<A, B> ZERO_HOST_DEVICE inline auto select(Condition const& condition, A const& when_true, B const& when_false) noexcept {
    if constexpr (std::same_as<Condition, bool>) {
        using F = detail::CommonNumber<A, B>;
        return condition ? F(when_true) : F(when_false);
    } else {
        return Condition::Number::select(condition, when_true, when_false);
    }
}

// The same in double, for hyper-parameters and sums. They are templates, so that a float times a double does not find them.

/// @brief a * b, in double.
template <std::same_as<double> Double>
ZERO_HOST_DEVICE inline Double mul(Double a, Double b) noexcept {
#if defined(__CUDA_ARCH__)
    return __dmul_rn(a, b);
#else
    return detail::uncontracted(a * b);
#endif
}

/// @brief a + b, in double.
template <std::same_as<double> Double>
ZERO_HOST_DEVICE inline Double add(Double a, Double b) noexcept {
#if defined(__CUDA_ARCH__)
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}

/// @brief a - b, in double.
template <std::same_as<double> Double>
ZERO_HOST_DEVICE inline Double sub(Double a, Double b) noexcept {
#if defined(__CUDA_ARCH__)
    return __dsub_rn(a, b);
#else
    return a - b;
#endif
}

/// @brief The square root, in double.
template <std::same_as<double> Double>
ZERO_HOST_DEVICE inline Double root(Double x) noexcept {
#if defined(__CUDA_ARCH__)
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

} // namespace zero::ops
