#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpt {

/// @brief A sum in a fixed order that does not depend on where the data lies: eight interleaved partial sums, added pairwise.
/// Eight chains instead of one let the processor overlap the additions. `term(index)` gives the summands.
template <class Real, class Term>
Real sum_of(std::size_t count, Term const& term) noexcept {
    constexpr std::size_t lanes = 8;
    std::array<Real, lanes> partial{};
    std::size_t index = 0;
    for (; index + lanes <= count; index += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            partial[lane] += term(index + lane);
        }
    }
    for (std::size_t lane = 0; index < count; ++index, ++lane) {
        partial[lane] += term(index);
    }
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) + ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/// @brief e^value without a call or a branch, so that loops over it vectorise; float within 3 units in the last place.
///
/// value = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial, whose remainder r^8 / 8! is below 6e-9; 2^n by writing
/// the exponent bits. The argument is clamped to where 2^n is a normal number: infinities come out as very large or small, a NaN as NaN.
inline float exponential(float value) noexcept {
    constexpr float round_to_integer = 0x1.8p23F; // after adding it the low bits of the significand are the nearest integer
    constexpr float ln2_high = 0x1.62ep-1F;       // few bits: n * ln2_high is exact
    constexpr float ln2_low = 0x1.0bfbe8p-15F;
    float const clamped = std::min(std::max(value, -87.0F), 88.0F); // a NaN passes both comparisons
    float const shifted = clamped * 0x1.715476p0F + round_to_integer;
    float const n = shifted - round_to_integer;
    float const r = (clamped - n * ln2_high) - n * ln2_low;
    float polynomial = 1.0F / 5040.0F;
    polynomial = polynomial * r + 1.0F / 720.0F;
    polynomial = polynomial * r + 1.0F / 120.0F;
    polynomial = polynomial * r + 1.0F / 24.0F;
    polynomial = polynomial * r + 1.0F / 6.0F;
    polynomial = polynomial * r + 0.5F;
    polynomial = polynomial * r + 1.0F;
    polynomial = polynomial * r + 1.0F;
    std::uint32_t const exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23U; // the other bits are shifted out
    return polynomial * std::bit_cast<float>(exponent);
}

inline double exponential(double value) noexcept { return std::exp(value); }

/// @brief 1 / (1 + e^-value)
template <class Real>
Real sigmoid(Real value) noexcept {
    return Real{1} / (Real{1} + exponential(-value));
}

/// @brief Turns `count` scores (at least 1) into probabilities in place and returns log(sum of e^score), the normaliser.
template <class Real>
double softmax(Real* values, std::size_t count) noexcept {
    Real maximum = values[0];
    for (std::size_t index = 1; index < count; ++index) {
        maximum = std::max(maximum, values[index]);
    }
    for (std::size_t index = 0; index < count; ++index) {
        values[index] = exponential(values[index] - maximum);
    }
    Real const sum = sum_of<Real>(count, [=](std::size_t index) { return values[index]; });
    Real const inverse_sum = Real{1} / sum;
    for (std::size_t index = 0; index < count; ++index) {
        values[index] *= inverse_sum;
    }
    return static_cast<double>(maximum) + std::log(static_cast<double>(sum));
}

// GELU in its tanh form, x/2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 u).
namespace detail {
template <class Real>
inline constexpr Real gelu_linear = static_cast<Real>(1.5957691216057307117597842397375); // 2 sqrt(2 / pi)
template <class Real>
inline constexpr Real gelu_cubic = static_cast<Real>(0.044715) * gelu_linear<Real>;
} // namespace detail

template <class Real>
Real gelu(Real x) noexcept {
    return x * sigmoid(x * (detail::gelu_linear<Real> + detail::gelu_cubic<Real> * (x * x)));
}

template <class Real>
Real gelu_derivative(Real x) noexcept {
    Real const square = x * x;
    Real const gate = sigmoid(x * (detail::gelu_linear<Real> + detail::gelu_cubic<Real> * square));
    Real const inner = detail::gelu_linear<Real> + Real{3} * detail::gelu_cubic<Real> * square;
    return gate + x * gate * (Real{1} - gate) * inner;
}

} // namespace gpt
