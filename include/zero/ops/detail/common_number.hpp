#pragma once

#include "../../core/detail/namespace.hpp"

#include <bit>
#include <concepts>
#include <cstdint>

namespace ZERO_NAMESPACE::ops::detail {

/// The number type of an expression with these operands: the pack if there is one (a `float` beside
/// it is repeated in every lane).
template <class A, class... Others>
struct Common {
    using type = A;
};
template <class... Others>
    requires(sizeof...(Others) > 0)
struct Common<float, Others...> : Common<Others...> {};

template <class... Operands>
using CommonNumber = typename Common<Operands...>::type;

/// Keeps a product from being contracted with a later sum. Where the hardware has a fused
/// multiply-add, GCC does that across statements by default and clang with a flag; an empty
/// assembly statement that "changes" the product ends the expression and costs no instruction.
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

/// a * b + c with one rounding, in double arithmetic: the product of two floats is exact there, the
/// sum is rounded to odd (inexact results get an odd last bit), and rounding an odd result of 53
/// bits to 24 bits or fewer is the same as rounding the exact one.
constexpr float fma_by_rounding_to_odd(float a, float b, float c) noexcept {
    double const product = static_cast<double>(a) * static_cast<double>(b);
    double const addend = static_cast<double>(c);
    double const sum = product + addend;
    double const part = sum - product;
    double const error =
        (product - (sum - part)) + (addend - part); // exact: sum + error = product + addend
    auto bits = std::bit_cast<std::uint64_t>(sum);
    bool const inexact = error < 0.0 || error > 0.0; // false for the NaN that an infinity leaves
    if (inexact && (bits & 1U) == 0) {
        bits = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
    }
    return static_cast<float>(std::bit_cast<double>(bits));
}

} // namespace ZERO_NAMESPACE::ops::detail
