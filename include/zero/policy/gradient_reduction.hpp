#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "../core/storage_types.hpp"
#include "../layout/stage_table.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief The operation that combines the gradients of ranks and micro-steps.
enum class ReductionKind : std::uint8_t {
    mean,            ///< mean over ranks and micro-steps
    sum,             ///< sum over ranks and micro-steps
    mean_over_ranks, ///< mean over ranks, sum over micro-steps, for trainers that divide the loss
                     ///< by the number of backward passes themselves, as with PyTorch's
                     ///< DistributedDataParallel
    weighted_mean ///< sum divided by the total weight of all ranks, which is passed to `step`: the
                  ///< number of tokens or samples, where it differs between ranks
};

/// @brief Options of `GradientReduction`. They must be equal on all ranks.
struct GradientReductionOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    ReductionKind kind = ReductionKind::mean;  ///< the operation that combines gradients
    std::optional<ReductionSchedule>
        schedule{}; ///< default: `boundary` in stages 0 and 1, `every_micro_step` in 2 and 3
    /// Capacity of the buffer in which gradients are converted before they are sent. A larger
    /// bucket takes several collectives, of at least 64 elements per rank.
    std::size_t wire_bytes = std::size_t{25} << 20U;
    /// Divisor before communication, positive. A power of two divides without rounding. Default:
    /// the power of two near sqrt(W) if float16 is sent, else 1.
    std::optional<float> predivide{};
    std::size_t micro_batches = 0; ///< `TreeReduction` only: V, all micro-batches of a step
    /// `TreeReduction` only: b, the number of micro-batches that are added first; it divides V. W
    /// is b times a power of two, or a power of two that divides b.
    std::size_t micro_batch_group = 1;
    /// Whether every step has one micro-step; a second one is then refused. Sums that have the
    /// gradient type, and of which a rank holds all (stages 0 and 1, and a single rank), replace
    /// the gradients, so no gradient is leased.
    bool one_micro_step = false;
};

/// @brief The types in which gradients are written, communicated and accumulated. `void` selects
/// the default.
/// @tparam Gradient      written by the backward pass; default: the parameter type
/// @tparam Communication sent between ranks; default: the gradient type
/// @tparam Accumulation  sum over micro-steps; default: float
///
/// A sum over ranks is formed in float in rank order and rounded once to the communication type, in
/// every stage. Means are formed by one factor at the end, never during communication.
template <class Gradient = void, class Communication = void, class Accumulation = void>
struct GradientReduction {
    using policy_category = GradientReductionCategory;
    using Options = GradientReductionOptions;

    /// @brief The type that the backward pass writes for parameters of this type.
    template <class Parameter>
    using GradientType = std::conditional_t<std::is_void_v<Gradient>, Parameter, Gradient>;

    /// @brief The type that is communicated for parameters of this type.
    template <class Parameter>
    using CommunicationType =
        std::conditional_t<std::is_void_v<Communication>, GradientType<Parameter>, Communication>;

    /// @brief The type in which micro-steps are accumulated for parameters of this type.
    template <class Parameter>
    using AccumulationType = std::conditional_t<std::is_void_v<Accumulation>, float, Accumulation>;
};

/// @brief The same types, but the gradients of a step's micro-batches are added in one tree, so
/// that every bit is the same for every admissible number of ranks.
///
/// `reduction.micro_batches` is V, for all numbers of ranks; each rank makes V / W micro-steps, and
/// in micro-step m computes micro-batch m * W + rank (`Engine::micro_batch`). What is sent is the
/// gradient of each micro-batch; sums are floats, converted once, to the accumulation type. See
/// ops/tree_sum.hpp for the tree and the admissible W.
///
/// Gradients are reduced in every micro-step, in all stages. A rank holds at most log2(V / W) sums
/// of its shard beside the accumulation buffer. Not possible: a communication type that cannot hold
/// every gradient, `ReductionSchedule::boundary`, `predivide`, `mean_over_ranks`.
template <class Gradient = void, class Communication = void, class Accumulation = void>
struct TreeReduction : GradientReduction<Gradient, Communication, Accumulation> {
    static constexpr bool adds_in_tree = true; ///< gradients are added as micro-batches
};

namespace detail {

/// @brief Whether a policy adds gradients as micro-batches.
template <class Reduction>
inline constexpr bool adds_in_tree = requires { requires Reduction::adds_in_tree; };

} // namespace detail

} // namespace ZERO_NAMESPACE

/// The requirements of `GradientReductionPolicy`, one concept each. The concept and its messages
/// use them.
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
