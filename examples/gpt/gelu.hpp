#pragma once

#include <zero/core/host_device.hpp>

namespace gpt {

// GELU in its tanh form, x/2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x
// sigmoid(2 u). `Number` is `Real` or a pack of it. The caller passes the exponential function of
// its machine.

namespace detail {

template <class Real>
inline constexpr Real gelu_linear =
    static_cast<Real>(1.5957691216057307117597842397375); // 2 sqrt(2 / pi)
template <class Real>
inline constexpr Real gelu_cubic = static_cast<Real>(0.044715) * gelu_linear<Real>;

/// 1 / (1 + e^-value)
ZERO_NO_SIDE_CHECK
template <class Number, class Exponential>
ZERO_HOST_DEVICE constexpr Number sigmoid(Number value, Exponential const& exponential) noexcept {
    return 1 / (1 + exponential(-value));
}

} // namespace detail

ZERO_NO_SIDE_CHECK
template <class Real, class Number, class Exponential>
ZERO_HOST_DEVICE constexpr Number gelu(Number x, Exponential const& exponential) noexcept {
    return x
           * detail::sigmoid(x * (detail::gelu_linear<Real> + detail::gelu_cubic<Real> * (x * x)),
                             exponential);
}

ZERO_NO_SIDE_CHECK
template <class Real, class Number, class Exponential>
ZERO_HOST_DEVICE constexpr Number gelu_derivative(Number x,
                                                  Exponential const& exponential) noexcept {
    Number const square = x * x;
    Number const gate = detail::sigmoid(
        x * (detail::gelu_linear<Real> + detail::gelu_cubic<Real> * square), exponential);
    Number const inner = detail::gelu_linear<Real> + 3 * detail::gelu_cubic<Real> * square;
    return gate + x * gate * (1 - gate) * inner;
}

} // namespace gpt
