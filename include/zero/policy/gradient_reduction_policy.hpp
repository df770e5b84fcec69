#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/gradient_reduction_requirements.hpp"

#include <concepts>

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

} // namespace ZERO_NAMESPACE
