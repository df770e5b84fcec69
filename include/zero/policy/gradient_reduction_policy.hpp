#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "gradient_reduction.hpp"

#include <concepts>
#include <cstddef>

/// @file
/// @brief The requirements of `GradientReductionPolicy`, one concept each. The concept and its
/// messages use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept GradientReductionHasOptions = std::same_as<typename P::Options, GradientReductionOptions>;

template <class P>
concept GradientReductionHasTypes = StorageType<typename P::template GradientType<float>>
                                    && StorageType<typename P::template CommunicationType<float>>
                                    && StorageType<typename P::template AccumulationType<float>>;

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that names the types in which gradients are written, communicated and
/// accumulated. Its options are `GradientReductionOptions`.
template <class P>
concept GradientReductionPolicy =
    std::same_as<typename P::policy_category, GradientReductionCategory>
    && detail::GradientReductionHasOptions<P> && detail::GradientReductionHasTypes<P>;

/// @brief Reports each reason why `P` is not a `GradientReductionPolicy` as one error.
template <class P>
consteval bool diagnose_gradient_reduction() {
    static_assert(
        detail::GradientReductionHasOptions<P>,
        "zero: a GradientReduction policy needs 'using Options = zero::GradientReductionOptions'.");
    static_assert(detail::GradientReductionHasTypes<P>,
                  "zero: gradient, communication and accumulation types are float, zero::bfloat16 "
                  "or zero::float16 (void: the default).");
    return GradientReductionPolicy<P>;
}

/// @brief Returns the divisor of a payload before it is sent. It keeps a sum over W ranks in the
/// range of the communication type.
/// @throws InvalidArgument if the option or its inverse is not a positive normal number.
float predivide_factor(GradientReductionOptions const& options, std::size_t world,
                       bool communicates_float16);

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
