#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "detail/uncontracted.hpp"
#include "number.hpp"

#include <concepts>
#include <cstdint>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief The number type of an operation with these operands: the pack if there is one, else
/// float. A `float` operand is broadcast to every lane of a pack.
template <class A, class... Others>
struct Common {
    using type = A;
};
template <class... Others>
    requires(sizeof...(Others) > 0)
struct Common<float, Others...> : Common<Others...> {};

template <class... Operands>
using CommonNumber = typename Common<Operands...>::type;

/// @brief Computes a * b + c with one rounding, for hardware without a fused multiply-add.
///
/// The product of two floats is exact in double. The sum is rounded to odd: an inexact result gets
/// an odd last bit. Rounding an odd result of 53 bits to at most 24 bits equals rounding the exact
/// result.
constexpr float fma_by_rounding_to_odd(float a, float b, float c) noexcept {
    double const product = static_cast<double>(a) * static_cast<double>(b);
    double const addend = static_cast<double>(c);
    double const sum = product + addend;
    double const part = sum - product;
    double const error =
        (product - (sum - part)) + (addend - part); // exact: sum + error = product + addend
    auto bits = __builtin_bit_cast(std::uint64_t, sum);
    bool const inexact = error < 0.0 || error > 0.0; // false for the NaN that an infinity leaves
    if (inexact && (bits & 1U) == 0) {
        bits = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
    }
    return static_cast<float>(__builtin_bit_cast(double, bits));
}

} // namespace ZERO_NAMESPACE::ops::detail

// The library guarantees equal bits between stages, compilers, instruction sets and devices. Flags
// that let a compiler change the value of an expression would break this silently, so detectable
// ones are errors.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)        \
    || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "zero: -ffast-math and its parts change results and hide infinities; compile without them."
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error                                                                                             \
    "zero: float arithmetic is done in a wider type here (x87?); compile with SSE arithmetic (-msse2 -mfpmath=sse)."
#endif

/// @file
/// @brief The arithmetic of element-wise functors. A functor is a template over a number type `F`.
/// It runs on `float` (device, scalar code) and on packs (host loops). Every function rounds once,
/// to nearest even. No two functions are ever fused, under any compiler flags.

namespace ZERO_NAMESPACE::ops {

/// @brief Operands of one operation: floats, packs of one type, or both.
template <class... Operands>
concept Operable = (Number<Operands> && ...)
                   && ((std::same_as<Operands, float>
                        || std::same_as<Operands, detail::CommonNumber<Operands...>>)&&...);

/// @brief a * b + c, rounded once.
template <class A, class B, class C>
    requires Operable<A, B, C>
ZERO_HOST_DEVICE inline detail::CommonNumber<A, B, C> fma(A const& a, B const& b,
                                                          C const& c) noexcept {
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
    requires Operable<A, B>
ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> mul(A const& a, B const& b) noexcept {
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
    requires Operable<A, B>
ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> add(A const& a, B const& b) noexcept {
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
    requires Operable<A, B>
ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> sub(A const& a, B const& b) noexcept {
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
    requires Operable<A, B>
ZERO_HOST_DEVICE inline detail::CommonNumber<A, B> div(A const& a, B const& b) noexcept {
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

/// @brief The square root; NaN for x < 0.
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

/// @brief a < b per lane, as a `bool` or the pack's mask. False where an operand is NaN.
template <class A, class B>
    requires Operable<A, B>
ZERO_HOST_DEVICE inline auto less(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::less(a, b);
    } else {
        return a < b;
    }
}

/// @brief a <= b per lane, as a `bool` or the pack's mask. False where an operand is NaN.
template <class A, class B>
    requires Operable<A, B>
ZERO_HOST_DEVICE inline auto less_equal(A const& a, B const& b) noexcept {
    using F = detail::CommonNumber<A, B>;
    if constexpr (!std::same_as<F, float>) {
        return F::less_equal(a, b);
    } else {
        return a <= b;
    }
}

/// @brief Selects `when_true` where the condition holds, and `when_false` elsewhere. Both are
/// evaluated.
template <class Condition, class A, class B>
    requires Operable<A, B>
ZERO_HOST_DEVICE inline auto select(Condition const& condition, A const& when_true,
                                    B const& when_false) noexcept {
    if constexpr (std::same_as<Condition, bool>) {
        using F = detail::CommonNumber<A, B>;
        return condition ? F(when_true) : F(when_false);
    } else {
        return Condition::Number::select(condition, when_true, when_false);
    }
}

// The same in double, for hyper-parameters and sums. They are templates, so a mixture of float and
// double does not compile.

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

} // namespace ZERO_NAMESPACE::ops
