#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/host_device.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief The anchor that lets loops add squares in double without rounding. Host and device
/// share it.
///
/// An accumulator t starts at `anchor`, and a remainder r at 0. For each element x:
///
///     next = t + x * x;  taken = next - t;  r += x * x - taken;  t = next
///
/// At the end t - anchor + r is the sum of the squares. Only the first operation rounds:
///
/// Let E be the exponent that the anchor was made for, at least that of the largest magnitude, and
/// e that of the smallest non-zero one. Then a square is below 2^(2E + 2), and all squares are
/// multiples of w = 2^(2e - 2(p - 1)) for elements of p significant bits. The anchor is 1.5 * 2^K
/// with K = 2E + 3 + log2(terms), so t stays within [2^K, 2^(K + 1)), where doubles are multiples
/// of u = 2^(K - 52). So `taken` is a multiple of u and exact. The remainder of one square is at
/// most u / 2, and those of all elements together are at most u * elements / 2 in magnitude, which
/// is `offset`. They are multiples of w, and a double holds multiples up to 2^53 w. So every sum of
/// remainders is exact, in any order, also with `offset` added, if u * elements <= 2^53 w. That is:
/// E - e <= `widest`.
///
/// Moving `offset` from t - anchor to the remainders makes both numbers non-negative, as
/// `Inspection` needs them: one square is 2 * `offset` or more if the exponent of the largest
/// magnitude is at least E - `deepest`, and that magnitude is not subnormal.
/// @tparam significant_bits p
/// @tparam log2_terms log2 of the most squares that one accumulator takes
/// @tparam log2_elements log2 of the most squares that all accumulators take together
template <int significant_bits, int log2_terms, int log2_elements>
struct SquareAnchor {
    static constexpr int widest = (104 - 2 * significant_bits - log2_terms - log2_elements) / 2;
    static constexpr int deepest = (49 - log2_terms - log2_elements) / 2;

    int largest;       ///< exponent field of E as a float
    int unit_exponent; ///< exponent field of u as a double
    double anchor;     ///< the first value of each accumulator
    double offset;     ///< a multiple of u; see above

    /// @param exponent exponent field of E as a float, 1 to 254
    ZERO_HOST_DEVICE explicit SquareAnchor(int exponent) noexcept
        : largest(exponent), unit_exponent(2 * (exponent - 127) + 3 + log2_terms - 52 + 1023),
          anchor(power(unit_exponent + 52, std::uint64_t{1} << 51U)),
          offset(power(unit_exponent + log2_elements - 1, 0)) {}

    /// @brief Returns whether the sum is exact for elements with these exponent fields: 0 for
    /// subnormal numbers, 255 for infinity and NaN.
    /// @param smallest smallest exponent field of the elements that are not zero
    [[nodiscard]] ZERO_HOST_DEVICE bool serves(int largest_found, int smallest) const noexcept {
        return largest_found >= 1 && largest_found <= largest && largest - largest_found <= deepest
               && largest - smallest <= widest;
    }

private:
    /// Returns 2^(exponent - 1023), with these bits of the significand.
    ZERO_HOST_DEVICE static double power(int exponent, std::uint64_t bits) noexcept {
        return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent) << 52U | bits);
    }
};

} // namespace ZERO_NAMESPACE::ops::detail
