#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

namespace ZERO_NAMESPACE {

struct OptimizerStateOptions {};

/// @brief The type that each state of the optimizer is stored in: float (the default) or bfloat16.
///
/// The functor computes in float all the same: a state is widened, updated, and rounded once, to
/// nearest even. A bfloat16 state moves only if a step changes it by more than 2^-9 of itself. So a
/// second moment that decays by less than that (beta2 above 0.998) grows but never shrinks; choose
/// a smaller beta2.
template <class T>
struct OptimizerState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = false;
};

/// @brief States in float16, with one float per 64 elements that scales them: 2.0625 bytes for each
/// state of an element.
///
/// The scale is a power of two that puts the largest magnitude of its block between 2^14 and 2^15
/// (`ops::block_scale`), so scaling is exact and nothing overflows. It is rounded to nearest even,
/// but what is not zero is never stored as zero (a second moment that vanished would make the next
/// update as large as 1 / epsilon). So a stored state differs from the float by at most 2^-11 of
/// itself or, if that is more, 2^-38 of the largest in its block. Blocks are counted from the start
/// of each parameter, so they do not depend on the number of ranks; in an adopted block of the
/// caller's they begin with each slice, so there they do. Where gradients of neighbours differ by
/// factors beyond 2^19, second moments of the small ones are kept too large, and their updates are
/// too small.
template <class T>
struct BlockScaledState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = true;
};

} // namespace ZERO_NAMESPACE
