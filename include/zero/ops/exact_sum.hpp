#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "arithmetic.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ZERO_NAMESPACE::ops {

/// @brief The result of one pass over gradients: the exact sum of squares, and the number of
/// elements that are not finite.
///
/// The square of a float is a multiple of 2^-298 (the square of the smallest subnormal float) below
/// 2^256. Squares are added as integers on that grid, without rounding. So the sum depends on the
/// elements alone: not on their order, not on the slices, buckets and shards that they are cut
/// into, and not on the rank that holds them. Elements that are not finite are counted and add
/// nothing. The digits of equal sums may differ in pending carries; compare `sum_of_squares()`
/// instead.
///
/// Bit 0 of the grid stands for 2^-298, and a digit holds 28 bits. 20 digits reach up to 2^262. Two
/// more digits take the zeros that the widest write puts above them.
///
/// Capacity: a write adds less than 2^28 to a digit, so 2^35 writes keep the digits below 2^63.
/// Loops add many elements before they write, or carry afterwards. On the host a slice of n
/// elements counts as at most 64 + n / 256 writes: 2^40 elements in 2^28 slices fit. On a device an
/// element counts as at most one write. So a plain integer sum adds the digits of all ranks.
struct Inspection {
    static constexpr int digit_bits = 28;     ///< bits of a digit; higher bits are pending carries
    static constexpr std::size_t digits = 22; ///< 20 for the grid, two for the zeros above a write
    static constexpr std::size_t count = digits + 1; ///< length of `sums`
    static constexpr std::int64_t none =
        std::numeric_limits<std::int64_t>::max(); ///< value of `first_non_finite` if all elements
                                                  ///< are finite
    static constexpr std::uint64_t hidden_bit =
        std::uint64_t{1} << 52U; ///< implicit leading bit of a double's significand

    std::int64_t sums[count] = {}; ///< the digits, lowest first, then the number of non-finite
                                   ///< elements; summed over the ranks
    std::int64_t first_non_finite =
        none; ///< smallest index of a non-finite element; the minimum is taken over the ranks

    /// @brief Resets to the state before any element.
    ZERO_HOST_DEVICE void clear() noexcept {
        for (auto& sum : sums) {
            sum = 0;
        }
        first_non_finite = none;
    }

    /// @brief Adds a number: a square, or an exact sum of several. It is finite, not negative, and
    /// a multiple of 2^-298 below 2^268.
    ZERO_HOST_DEVICE void add(double number) noexcept {
        auto const bits = __builtin_bit_cast(std::uint64_t, number);
        if (bits != 0) {
            add_significands((bits & (hidden_bit - 1)) | hidden_bit, static_cast<int>(bits >> 52U));
        }
    }

    /// @brief Four consecutive digits.
    struct Digits {
        unsigned first;        ///< position of the lowest digit
        std::int64_t value[4]; ///< added to the digits from `first` on
    };

    /// @brief Returns integer * 2^(exponent - 1075) on the grid. The integer is below 2^63, the
    /// exponent is at least 725, and bits below the grid are zero.
    [[nodiscard]] ZERO_HOST_DEVICE static Digits digits_of(std::uint64_t integer,
                                                           int exponent) noexcept {
        constexpr std::uint64_t digit_mask = (std::uint64_t{1} << digit_bits) - 1;
        int position = exponent - (1075 - 298);
        if (position < 0) { // bits below the grid are zero
            integer >>= static_cast<unsigned>(-position);
            position = 0;
        }
        auto const shift = static_cast<unsigned>(position) % digit_bits;
        std::uint64_t const low = (integer & digit_mask) << shift;
        std::uint64_t const middle =
            (((integer >> digit_bits) & digit_mask) << shift) + (low >> digit_bits);
        std::uint64_t const high =
            ((integer >> (2 * digit_bits)) << shift) + (middle >> digit_bits);
        return {static_cast<unsigned>(position) / digit_bits,
                {static_cast<std::int64_t>(low & digit_mask),
                 static_cast<std::int64_t>(middle & digit_mask),
                 static_cast<std::int64_t>(high & digit_mask),
                 static_cast<std::int64_t>(high >> digit_bits)}};
    }

    /// @brief Adds integer * 2^(exponent - 1075), for instance the sum of several significands with
    /// the same exponent field. The integer is below 2^63.
    ZERO_HOST_DEVICE void add_significands(std::uint64_t integer, int exponent) noexcept {
        Digits const digits_to_add = digits_of(integer, exponent);
        sums[digits_to_add.first] += digits_to_add.value[0];
        sums[digits_to_add.first + 1] += digits_to_add.value[1];
        sums[digits_to_add.first + 2] += digits_to_add.value[2];
        sums[digits_to_add.first + 3] += digits_to_add.value[3];
    }

    /// @brief Moves pending carries to the next digits. The sum stays the same; equal sums then
    /// have equal digits, and all digits but the last are below 2^28.
    ZERO_HOST_DEVICE void carry() noexcept {
        for (std::size_t i = 0; i + 1 < digits; ++i) {
            sums[i + 1] += sums[i] >> digit_bits;
            sums[i] &= (std::int64_t{1} << digit_bits) - 1;
        }
    }

    /// @brief Counts an element that is infinite or NaN.
    /// @param index index of the element in registration order
    ZERO_HOST_DEVICE void add_non_finite(std::int64_t index) noexcept {
        ++sums[digits];
        first_non_finite = index < first_non_finite ? index : first_non_finite;
    }

    /// @brief Merges the result of another range or rank: sums `sums` and takes the minimum of
    /// `first_non_finite`.
    ZERO_HOST_DEVICE void merge(Inspection const& other) noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            sums[i] += other.sums[i];
        }
        first_non_finite =
            other.first_non_finite < first_non_finite ? other.first_non_finite : first_non_finite;
    }

    /// @brief Number of elements that were infinite or NaN.
    [[nodiscard]] ZERO_HOST_DEVICE std::int64_t non_finite_count() const noexcept {
        return sums[digits];
    }

    /// @brief The sum of squares of the finite elements, if squares were added. It depends only on
    /// the exact sum; the relative error is below 2^-52.
    [[nodiscard]] ZERO_HOST_DEVICE double sum_of_squares() const noexcept { return sum(); }

    /// @brief The sum of all numbers that were added. See `sum_of_squares`.
    [[nodiscard]] ZERO_HOST_DEVICE double sum() const noexcept {
        Inspection canonical = *this;
        canonical.carry();
        double value = 0.0;
        for (std::size_t i = 0; i < digits; ++i) {
            value = ops::add(mul(value, 0x1.0p-28), static_cast<double>(canonical.sums[i]));
        }
        return mul(value, 0x1.0p290); // the last digit counts multiples of 2^(28 * 21 - 298)
    }
};

/// @brief The l2 norm of the inspected elements, or NaN if one is not finite.
[[nodiscard]] ZERO_HOST_DEVICE inline double l2_norm(Inspection const& inspection) noexcept {
    return inspection.non_finite_count() == 0 ? ops::root(inspection.sum_of_squares())
                                              : __builtin_nan("");
}

static_assert(std::is_trivially_copyable_v<Inspection> && std::is_standard_layout_v<Inspection>);

} // namespace ZERO_NAMESPACE::ops
