#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"

#include <concepts>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief float and bfloat16 have the range that moments need; float16 has it with a scale only.
template <class P>
concept StateTypeFitsScale = StorageType<typename P::Type>
                             && P::is_block_scaled == std::is_same_v<typename P::Type, float16>;

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that names the type in which the optimizer's states are stored, and whether
/// blocks of them have a scale.
template <class P>
concept OptimizerStatePolicy =
    std::same_as<typename P::policy_category, OptimizerStateCategory> && requires {
        typename P::Options;
    } && std::same_as<decltype(P::is_block_scaled), bool const> && detail::StateTypeFitsScale<P>;

/// @brief Reports each reason why `P` is not an `OptimizerStatePolicy` as one error.
template <class P>
consteval bool diagnose_optimizer_state() {
    constexpr bool has_scale =
        requires { requires std::same_as<decltype(P::is_block_scaled), bool const>; };
    constexpr bool has_type = requires { typename P::Type; };
    static_assert(
        requires { typename P::Options; }, "zero: an OptimizerState policy needs a member type "
                                           "'Options' (an empty struct if it has none).");
    static_assert(
        has_type,
        "zero: an OptimizerState policy needs a member type 'Type' (what a state is stored in).");
    static_assert(has_scale, "zero: an OptimizerState policy needs 'static constexpr bool "
                             "is_block_scaled' (has each block of 64 a scale?).");
    if constexpr (has_type && has_scale) {
        static_assert(!P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: BlockScaledState is for float16, whose range moments exceed; write "
                      "zero::BlockScaledState<zero::float16>, or "
                      "zero::OptimizerState<T> for float and bfloat16.");
        static_assert(P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: states of an optimizer are float or bfloat16, or float16 with a "
                      "scale, without which second moments vanish; write "
                      "zero::OptimizerState<float>, zero::OptimizerState<zero::bfloat16> or "
                      "zero::BlockScaledState<zero::float16>.");
    }
    return OptimizerStatePolicy<P>;
}

} // namespace ZERO_NAMESPACE
