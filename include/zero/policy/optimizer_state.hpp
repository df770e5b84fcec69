#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

namespace ZERO_NAMESPACE {

/// @brief Second argument of a policy of 16-bit states: they are rounded to nearest even, not
/// stochastically. A state then changes only if a step changes it by more than half a unit in the
/// last place.
///
/// So a second moment with a slow decay (bfloat16: beta2 above 0.998) grows but never shrinks, and
/// a sum of squares stops growing. A run that began before states were rounded stochastically
/// continues with the same bits. A checkpoint does not depend on the rounding: each loads those of
/// the other.
struct RoundToNearest {};

/// @brief The storage type of optimizer states: float (the default) or bfloat16.
///
/// The functor always computes in float: a state is widened, updated, and rounded once. A bfloat16
/// state is rounded stochastically to either neighbour (`ops::round_stochastically`), so the
/// expected change is preserved. The random bits are a function of the step count, the state, and
/// the index of the element in registration order, so states do not depend on stage, world size or
/// queue, and a resumed run has the same bits. The seed is that of `StochasticRounding`, or 0
/// without that policy. docs/optimizers.md compares the length of updates with that under float
/// states.
/// @tparam R nothing, or `RoundToNearest` for bfloat16
template <class T, class... R>
struct OptimizerState {
    using policy_category = OptimizerStateCategory;
    using Type = T;
    static constexpr bool is_block_scaled = false;
    /// False with `RoundToNearest`, and for float, which is not rounded.
    static constexpr bool rounds_stochastically = sizeof...(R) == 0 && sizeof(T) < sizeof(float);
};

/// @brief Optimizer states in float16 or power8, with one float scale per block of 64 elements:
/// 2.0625 or 1.0625 bytes per state and element.
///
/// float16: the scale is a power of two that puts the largest magnitude of its block between 2^14
/// and 2^15 (`ops::block_scale`), so scaling is exact and nothing overflows. The error of a stored
/// state is at most 2^-10 of its value or 2^-37 of the largest value in its block, whichever is
/// larger; half of that with `RoundToNearest`. If neighbouring gradients differ by a factor above
/// 2^19, the second moments of the small ones are stored too large, and their updates are too
/// small.
///
/// power8: a state x is a power p of an integer k, times a scale that follows the largest value of
/// the block (ops/power_codes.hpp). Its error is less than (1 + 1 / k)^p - 1 of its value, where
/// in a block without negative numbers p = 8 and k = 254 (x / largest)^(1 / 8), otherwise p = 4
/// and k = 127 (x / largest)^(1 / 4), rounded down, but at least 1. That is 3 % of the largest
/// value, and 11 % at 1e-4, or 1e-2, of it. An infinite state becomes NaN, and magnitudes above
/// 2^127.8 are stored up to 6 % too small.
///
/// A non-zero state is never stored as zero, in power8 unless it is below 2^-142, because a
/// vanished second moment would make the next update as large as 1 / epsilon. Blocks start with
/// each parameter, so they do not depend on the number of ranks. In an adopted block they start
/// with each slice, so there they depend on it.
/// @tparam R nothing: rounded stochastically as in `OptimizerState`; or, for float16,
/// `RoundToNearest`
template <class T, class... R>
struct BlockScaledState {
    using policy_category = OptimizerStateCategory;
    using Type = T;
    static constexpr bool is_block_scaled = true;
    /// False with `RoundToNearest`.
    static constexpr bool rounds_stochastically = sizeof...(R) == 0;
};

} // namespace ZERO_NAMESPACE
