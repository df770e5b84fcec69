#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "arithmetic.hpp"
#include "exact_sum.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief A norm of the gradients.
enum class NormKind : std::uint8_t {
    l1,      ///< sum of |x|
    l2,      ///< root of the sum of squares
    infinity ///< largest |x|
};

namespace ops {

/// @brief The result of one pass over gradients for one norm: the exact sum of |x| (l1) or x^2
/// (l2), or the largest magnitude (infinity).
///
/// |x| is a multiple of 2^-149 below 2^128, so it fits the grid of `Inspection`. Each norm depends
/// on the elements alone, not on their order, their cuts or the rank that holds them.
struct NormSum {
    /// @brief For l1 and l2: the exact sum, and the number of elements that are not finite.
    Inspection exact{};

    /// @brief The bits of the largest |x|, negated. Bits are ordered as the numbers are, and those
    /// of infinity and NaN are largest. The minimum is taken over the ranks.
    std::int64_t negative_largest = 0;

    static constexpr std::uint32_t infinite_bits =
        0x7f800000U; ///< bits of infinity; those of NaN magnitudes are larger

    /// @brief Updates the largest magnitude with one element.
    ZERO_HOST_DEVICE void add_magnitude(float x) noexcept {
        auto const bits =
            -static_cast<std::int64_t>(__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffU);
        negative_largest = bits < negative_largest ? bits : negative_largest;
    }

    /// @brief The norm of all elements so far, times `factor`. Infinite if an element was not
    /// finite.
    [[nodiscard]] double value(NormKind kind, double factor) const noexcept {
        auto const largest = static_cast<std::uint32_t>(-negative_largest);
        if (exact.non_finite_count() != 0 || largest >= infinite_bits) {
            return std::numeric_limits<double>::infinity();
        }
        switch (kind) {
        case NormKind::l1: return mul(exact.sum(), factor);
        case NormKind::l2: return mul(root(exact.sum_of_squares()), factor);
        case NormKind::infinity:
            return mul(static_cast<double>(__builtin_bit_cast(float, largest)), factor);
        }
        return 0.0;
    }
};

static_assert(std::is_trivially_copyable_v<NormSum>);

} // namespace ops
} // namespace ZERO_NAMESPACE
