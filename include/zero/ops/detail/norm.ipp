#pragma once

#include "../norm.hpp"

#include "../arithmetic.hpp"

#include <limits>

namespace ZERO_NAMESPACE::ops {

ZERO_INLINE double NormSum::value(NormKind kind, double factor) const noexcept {
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

} // namespace ZERO_NAMESPACE::ops
