#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

namespace ZERO_NAMESPACE {

/// @brief Optimizer states have no options.
struct OptimizerStateOptions {};

/// @brief The storage type of optimizer states: float (the default) or bfloat16.
///
/// The functor always computes in float: a state is widened, updated, and rounded once, to nearest
/// even. A bfloat16 state changes only if a step changes it by more than 2^-9 of its value. So a
/// second moment with a slower decay (beta2 above 0.998) grows but never shrinks; choose a smaller
/// beta2.
template <class T>
struct OptimizerState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = false;
};

/// @brief Optimizer states in float16, with one float scale per block of 64 elements: 2.0625 bytes
/// per state and element.
///
/// The scale is a power of two that puts the largest magnitude of its block between 2^14 and 2^15
/// (`ops::block_scale`), so scaling is exact and nothing overflows. States are rounded to nearest
/// even, but a non-zero state is never stored as zero, because a vanished second moment would make
/// the next update as large as 1 / epsilon. The error of a stored state is at most 2^-11 of its
/// value or 2^-38 of the largest value in its block, whichever is larger.
///
/// Blocks start with each parameter, so they do not depend on the number of ranks. In an adopted
/// block they start with each slice, so there they depend on it. If neighbouring gradients differ
/// by a factor above 2^19, the second moments of the small ones are stored too large, and their
/// updates are too small.
template <class T>
struct BlockScaledState {
    using policy_category = OptimizerStateCategory;
    using Options = OptimizerStateOptions;
    using Type = T;
    static constexpr bool is_block_scaled = true;
};

} // namespace ZERO_NAMESPACE
