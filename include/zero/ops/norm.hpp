#pragma once

#include "../core/detail/namespace.hpp"
#include "exact_sum.hpp"
#include "host_device.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

namespace ZERO_NAMESPACE {

enum class NormKind : std::uint8_t {
    l1,      ///< the sum of |x|
    l2,      ///< the root of the sum of squares
    infinity ///< the largest |x|
};

namespace ops {

/// @brief What a pass over gradients finds for one norm: the exact sum of leaves (l1, l2), or the
/// largest magnitude (infinity).
///
/// A leaf of an l1 norm is formed like that of the sum of squares (see `Inspection`), of |x|
/// instead of x^2: a multiple of 2^-149 below 2^134, which the same grid holds. So each norm
/// depends neither on the order of leaves nor on the rank that holds them.
struct NormSum {
    Inspection
        leaves{}; ///< l1 and l2: the exact sum, and the count of elements that are not finite
    /// The bits of the largest |x|, negated: they are ordered as the numbers are, below those of
    /// infinity and NaN, and the minimum is taken over ranks.
    std::int64_t negative_largest = 0;

    static constexpr std::uint32_t infinite_bits =
        0x7f800000U; ///< of positive infinity; those of a NaN's magnitude are above

    /// @brief Adds one element to the largest magnitude.
    ZERO_HOST_DEVICE void add_magnitude(float x) noexcept {
        auto const bits =
            -static_cast<std::int64_t>(__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffU);
        negative_largest = bits < negative_largest ? bits : negative_largest;
    }

    /// @brief The norm of all that was added, times `factor`; infinite when an element was not
    /// finite.
    [[nodiscard]] double value(NormKind kind, double factor) const noexcept {
        auto const largest = static_cast<std::uint32_t>(-negative_largest);
        if (leaves.non_finite_count() != 0 || largest >= infinite_bits) {
            return std::numeric_limits<double>::infinity();
        }
        switch (kind) {
        case NormKind::l1: return mul(leaves.sum_of_leaves(), factor);
        case NormKind::l2: return mul(root(leaves.sum_of_squares()), factor);
        case NormKind::infinity:
            return mul(static_cast<double>(__builtin_bit_cast(float, largest)), factor);
        }
        return 0.0;
    }
};

static_assert(std::is_trivially_copyable_v<NormSum>);

} // namespace ops
} // namespace ZERO_NAMESPACE
