#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "../layout/placement.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief What the gradients of ranks and micro-steps are combined to.
enum class ReductionKind : std::uint8_t {
    mean,         ///< over ranks and micro-steps
    sum,          ///< of ranks and micro-steps
    weighted_mean ///< the sum divided by the weights of all ranks, which are given to `step`:
                  ///< tokens or samples, when ranks have not equally many
};

struct GradientReductionOptions {
    ReductionKind kind = ReductionKind::mean; ///< the same on all ranks, as the other options
    std::optional<ReductionSchedule>
        schedule{}; ///< default: `boundary` in stages 0 and 1, `every_micro_step` in 2 and 3
    std::optional<float>
        predivide{}; ///< positive; a power of two divides without rounding. Default: the one near
                     ///< sqrt(W) where float16 is sent, otherwise 1
};

/// @brief The types that gradients pass through. `void` stands for the default.
/// @tparam Gradient      what the backward pass writes; default: the parameter type
/// @tparam Communication what is sent; default: the gradient type
/// @tparam Accumulation  what micro-steps are added in; default: float
///
/// A sum over ranks is formed in float in rank order and rounded once to the communication type, in
/// every stage. Averages are formed by one factor at the end, never on the wire.
template <class Gradient = void, class Communication = void, class Accumulation = void>
struct GradientReduction {
    using policy_category = GradientReductionCategory;
    using Options = GradientReductionOptions;

    /// @brief What the backward pass writes for parameters of this type.
    template <class Parameter>
    using GradientType = std::conditional_t<std::is_void_v<Gradient>, Parameter, Gradient>;

    /// @brief What is sent for parameters of this type.
    template <class Parameter>
    using CommunicationType =
        std::conditional_t<std::is_void_v<Communication>, GradientType<Parameter>, Communication>;

    /// @brief What micro-steps are added in for parameters of this type.
    template <class Parameter>
    using AccumulationType = std::conditional_t<std::is_void_v<Accumulation>, float, Accumulation>;
};

/// @brief A policy that names the three types of a gradient's way and has the options above.
template <class P>
concept GradientReductionPolicy =
    std::same_as<typename P::policy_category, GradientReductionCategory>
    && std::same_as<typename P::Options, GradientReductionOptions>
    && StorageType<typename P::template GradientType<float>>
    && StorageType<typename P::template CommunicationType<float>>
    && StorageType<typename P::template AccumulationType<float>>;

/// @brief Reports each reason why `P` is not a `GradientReductionPolicy` as one error.
template <class P>
consteval bool diagnose_gradient_reduction() {
    static_assert(
        requires { requires std::same_as<typename P::Options, GradientReductionOptions>; },
        "zero: a GradientReduction policy needs 'using Options = zero::GradientReductionOptions'.");
    static_assert(
        requires {
            requires StorageType<typename P::template GradientType<float>>;
            requires StorageType<typename P::template CommunicationType<float>>;
            requires StorageType<typename P::template AccumulationType<float>>;
        }, "zero: gradient, communication and accumulation types are float, zero::bfloat16 or "
           "zero::float16 (void: the default).");
    return GradientReductionPolicy<P>;
}

/// @brief What a payload is divided by before it is sent, so that a sum over W ranks stays in the
/// range of its type.
/// @throws InvalidArgument when the option or its inverse is not a positive normal number.
inline float predivide_factor(GradientReductionOptions const& options, std::size_t world,
                              bool communicates_float16) {
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
