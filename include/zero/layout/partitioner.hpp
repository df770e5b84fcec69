#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/partitioner_requirements.hpp"
#include "partition_item.hpp"

namespace ZERO_NAMESPACE {

/// @brief A policy that orders the pieces of a bucket and cuts the bucket into one extent per rank.
///
/// Parameters of one type form two groups: the trainable and the frozen ones. For each group,
/// `begin(elements, world)` gets the sizes of all its parameters in the order in which buckets are
/// filled, and returns the `State` that is carried from bucket to bucket. Then `partition(items,
/// state, cuts)` gets the pieces of one bucket after another, in that order. It sets every offset
/// and the W + 1 ascending `cuts`, all multiples of `granularity`; cuts[0] is 0, and cuts[W] is the
/// size of the bucket, padding included. It may reorder the items. Both must be pure functions, so
/// that every rank gets the same layout.
template <class P>
concept Partitioner = detail::PartitionerHasCategory<P> && detail::PartitionerHasOptions<P>
                      && detail::PartitionerHasState<P> && detail::PartitionerHasCutsParameters<P>
                      && detail::PartitionerHasCutsGroup<P> && detail::PartitionerHasIsEven<P>
                      && detail::PartitionerHasBegin<P> && detail::PartitionerHasPartition<P>;

/// @brief A partitioner that also chooses the order in which the buckets of a group are filled.
///
/// `order(elements, world)` gets the sizes in gradient-ready order and returns a permutation of
/// their indices.
template <class P>
concept OrderingPartitioner = Partitioner<P> && detail::PartitionerHasOrder<P>;

/// @brief Reports each requirement of `Partitioner` that `P` lacks as one error.
template <class P>
consteval bool diagnose_partitioner() {
    static_assert(
        detail::PartitionerHasOptions<P>,
        "zero: a Partitioner needs a member type 'Options' (an empty struct if it has none).");
    static_assert(
        detail::PartitionerHasCutsParameters<P>,
        "zero: a Partitioner needs 'static constexpr bool cuts_parameters' (may a parameter lie on "
        "several ranks?).");
    static_assert(
        detail::PartitionerHasCutsGroup<P>,
        "zero: a Partitioner needs 'static constexpr bool cuts_group' (are shards cut from the "
        "whole group, "
        "not bucket by bucket?).");
    static_assert(
        detail::PartitionerHasIsEven<P>,
        "zero: a Partitioner needs 'static constexpr bool is_even' (are all extents of a bucket "
        "equally long?).");
    static_assert(
        detail::PartitionerHasState<P>,
        "zero: a Partitioner needs a copyable member type 'State' (what it carries from bucket to "
        "bucket).");
    if constexpr (requires { typename P::State; }) {
        static_assert(detail::PartitionerHasBegin<P>,
                      "zero: a Partitioner needs 'static State begin(std::span<std::size_t const> "
                      "elements, std::size_t world)'.");
        static_assert(
            detail::PartitionerHasPartition<P>,
            "zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, State&, "
            "std::span<std::size_t> cuts)'.");
    }
    return Partitioner<P>;
}

} // namespace ZERO_NAMESPACE
