#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gpt {

/// @brief Sums in a fixed order that does not depend on the address of the data: eight interleaved
/// partial sums, added pairwise. Eight chains instead of one let the processor overlap the
/// additions. `term(index)` gives the summands.
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
    return ((partial[0] + partial[4]) + (partial[2] + partial[6]))
           + ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/// @brief The largest of at least one value.
template <class Real>
Real maximum_of(Real const* values, std::size_t count) noexcept {
    constexpr std::size_t lanes = 4;
    std::array<Real, lanes> largest{values[0], values[0], values[0], values[0]};
    for (std::size_t index = 0; index < count; ++index) {
        Real& lane = largest[index % lanes];
        lane = lane < values[index] ? values[index] : lane;
    }
    return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

// Four floats of a vector register that every x86-64 and ARM processor has, spelled as a compiler
// extension because g++ does not vectorise plain loops at -O2. Doubles, which only the gradient
// check uses, are processed one at a time.
using Float4 [[gnu::vector_size(16)]] = float;
using Integer4 [[gnu::vector_size(16)]] = std::uint32_t;

template <class Real>
using Pack = std::conditional_t<std::is_same_v<Real, float>, Float4, Real>;

/// @brief values[i] = function(values[i], others[i]) on packs. The last, partial pack is padded
/// with zeros, so an element's bits do not depend on its position.
template <class Real, class Function>
void transform(Real* values, Real const* others, std::size_t count,
               Function const& function) noexcept {
    constexpr std::size_t lanes = sizeof(Pack<Real>) / sizeof(Real);
    for (std::size_t index = 0; index < count; index += lanes) {
        Pack<Real> value{};
        Pack<Real> other{};
        std::size_t const bytes = std::min(lanes, count - index) * sizeof(Real);
        if (bytes == sizeof(value)) { // a constant size makes each copy one instruction
            std::memcpy(&value, values + index, sizeof(value));
            std::memcpy(&other, others + index, sizeof(other));
            value = function(value, other);
            std::memcpy(values + index, &value, sizeof(value));
        } else {
            std::memcpy(&value, values + index, bytes);
            std::memcpy(&other, others + index, bytes);
            value = function(value, other);
            std::memcpy(values + index, &value, bytes);
        }
    }
}

/// @brief e^value without a call or a branch; within 3 units in the last place.
///
/// value = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial, whose remainder r^8 / 8!
/// is below 6e-9; 2^n by writing the exponent bits. The argument is clamped to where 2^n is a
/// normal number: infinities give very large or small results, a NaN gives NaN.
inline Float4 exponential(Float4 value) noexcept {
    constexpr float round_to_integer =
        0x1.8p23F; // after adding it the low bits of the significand are the nearest integer
    constexpr float ln2_high = 0x1.62ep-1F; // few bits: n * ln2_high is exact
    constexpr float ln2_low = 0x1.0bfbe8p-15F;
    Float4 const low = Float4{} - 87.0F;
    Float4 const high = Float4{} + 88.0F;
    Float4 const bounded = value < low ? low : value; // in this order a NaN passes
    Float4 const clamped = bounded > high ? high : bounded;
    Float4 const shifted = clamped * 0x1.715476p0F + round_to_integer;
    Float4 const n = shifted - round_to_integer;
    Float4 const r = (clamped - n * ln2_high) - n * ln2_low;
    Float4 polynomial = r * (1.0F / 5040.0F) + 1.0F / 720.0F;
    polynomial = polynomial * r + 1.0F / 120.0F;
    polynomial = polynomial * r + 1.0F / 24.0F;
    polynomial = polynomial * r + 1.0F / 6.0F;
    polynomial = polynomial * r + 0.5F;
    polynomial = polynomial * r + 1.0F;
    polynomial = polynomial * r + 1.0F;
    Integer4 const exponent = (std::bit_cast<Integer4>(shifted) + 127U)
                              << 23U; // the bits above the integer are shifted out
    return polynomial * std::bit_cast<Float4>(exponent);
}

inline double exponential(double value) noexcept {
    return std::exp(value);
}

/// @brief Turns `count` scores (at least 1) into probabilities in place and returns log(sum of
/// e^score), the normaliser.
template <class Real>
double softmax(Real* values, std::size_t count) noexcept {
    Real const maximum = maximum_of(values, count);
    transform(values, values, count,
              [=](auto value, auto) { return exponential(value - maximum); });
    Real const sum = sum_of<Real>(count, [=](std::size_t index) { return values[index]; });
    Real const inverse_sum = Real{1} / sum;
    for (std::size_t index = 0; index < count; ++index) {
        values[index] *= inverse_sum;
    }
    return static_cast<double>(maximum) + std::log(static_cast<double>(sum));
}

} // namespace gpt
