#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "gradient_reduction.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Returns the divisor of a payload before it is sent. It keeps a sum over W ranks in the
/// range of the communication type. It is not the mean: `detail::unscale_factor` undoes it and
/// divides by ranks and micro-steps.
/// @throws InvalidArgument if the option or its inverse is not a positive normal number
[[gnu::cold]] inline float predivide_factor(GradientReductionOptions const& options,
                                            std::size_t world, bool communicates_float16) {
    if (options.predivide) {
        constexpr float smallest_normal = 0x1p-126F; // 2^126 is the largest whose inverse is normal
        float const divisor = *options.predivide;
        if (!(divisor >= smallest_normal && divisor <= 1.0F / smallest_normal)) {
            detail::throw_error<InvalidArgument>(
                {"zero: predivide is ", divisor,
                 "; it and its inverse must be positive normal numbers. A power of two divides "
                 "without rounding."});
        }
        return divisor;
    }
    float divisor = 1.0F;
    while (communicates_float16 && static_cast<std::size_t>(divisor * divisor) * 2 < world) {
        divisor *= 2.0F;
    }
    return divisor;
}

} // namespace ZERO_NAMESPACE
