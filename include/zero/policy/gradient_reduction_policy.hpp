#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "gradient_reduction.hpp"

#include <concepts>

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

} // namespace ZERO_NAMESPACE
