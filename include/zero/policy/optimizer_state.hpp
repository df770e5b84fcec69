#pragma once

#include "../core/float16.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <type_traits>

namespace zero {

struct OptimizerStateOptions {};

/// @brief The type that each state of the optimizer is stored in: float (the default) or bfloat16.
///
/// The functor computes in float all the same: a state is widened, updated, and rounded once, to nearest even. A bfloat16 state moves only if a step
/// changes it by more than 2^-9 of itself. So a second moment that decays by less than that (beta2 above 0.998) grows but never shrinks; choose
/// a smaller beta2.
template <class T>
struct OptimizerState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = false;
};

/// @brief States in float16, with one float per 64 elements that scales them: 2.0625 bytes for each state of an element.
///
/// The scale is a power of two that puts the largest magnitude of its block between 2^14 and 2^15 (`ops::block_scale`), so scaling is exact and
/// nothing overflows. It is rounded to nearest even, but what is not zero is never stored as zero (a second moment that vanished would make the
/// next update as large as 1 / epsilon). So a stored state differs from the float by at most 2^-11 of itself or, if that is more, 2^-38 of
/// the largest in its block. Blocks are counted from the start of each parameter, so they do not depend on the number of ranks; in an adopted block of the caller's
/// they begin with each slice, so there they do. Where gradients of neighbours differ by factors beyond 2^19, second moments of the small ones are kept too
/// large, and their updates are too small.
template <class T>
struct BlockScaledState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = true;
};

namespace detail {

/// @brief float and bfloat16 have the range that moments need; float16 has it with a scale only.
template <class P>
concept StateTypeFitsScale = StorageType<typename P::Type> && P::is_block_scaled == std::is_same_v<typename P::Type, float16>;

} // namespace detail

/// @brief A policy that names the type in which the optimizer's states are stored, and whether blocks of them have a scale.
template <class P>
concept OptimizerStatePolicy = std::same_as<typename P::policy_category, OptimizerStateCategory> && requires { typename P::Options; }
                            && std::same_as<decltype(P::is_block_scaled), bool const> && detail::StateTypeFitsScale<P>;

/// @brief Reports each reason why `P` is not an `OptimizerStatePolicy` as one error.
template <class P>
consteval bool diagnose_optimizer_state() {
    constexpr bool has_scale = requires { requires std::same_as<decltype(P::is_block_scaled), bool const>; };
    constexpr bool has_type = requires { typename P::Type; };
    static_assert(requires { typename P::Options; }, "zero: an OptimizerState policy needs a member type 'Options' (an empty struct if it has none).");
    static_assert(has_type, "zero: an OptimizerState policy needs a member type 'Type' (what a state is stored in).");
    static_assert(has_scale, "zero: an OptimizerState policy needs 'static constexpr bool is_block_scaled' (has each block of 64 a scale?).");
    if constexpr (has_type && has_scale) {
        static_assert(!P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: BlockScaledState is for float16, whose range moments exceed; write zero::BlockScaledState<zero::float16>, or "
                      "zero::OptimizerState<T> for float and bfloat16.");
        static_assert(P::is_block_scaled || detail::StateTypeFitsScale<P>,
                      "zero: states of an optimizer are float or bfloat16, or float16 with a scale, without which second moments vanish; write "
                      "zero::OptimizerState<float>, zero::OptimizerState<zero::bfloat16> or zero::BlockScaledState<zero::float16>.");
    }
    return OptimizerStatePolicy<P>;
}

} // namespace zero
