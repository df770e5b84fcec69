#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "flat_layout.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A piece of a bucket as a `Partitioner` sees it.
struct PartitionItem {
    std::size_t index = 0;    ///< identifies the piece when the partitioner reorders the items
    std::size_t elements = 0; ///< without padding
    std::size_t offset = 0; ///< set by the partitioner: first element in the bucket, a multiple of
                            ///< `granularity`
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

// The requirements of `Partitioner` and `OrderingPartitioner`, one concept each. The concepts and
// their messages use them.

template <class P>
concept PartitionerHasCategory = std::same_as<typename P::policy_category, PartitionerCategory>;

template <class P>
concept PartitionerHasCutsParameters = std::same_as<decltype(P::cuts_parameters), bool const>;

template <class P>
concept PartitionerHasCutsGroup = std::same_as<decltype(P::cuts_group), bool const>;

template <class P>
concept PartitionerHasIsEven = std::same_as<decltype(P::is_even), bool const>;

template <class P>
concept PartitionerHasState = std::copy_constructible<typename P::State>;

template <class P>
concept PartitionerHasBegin = requires(std::span<std::size_t const> elements, std::size_t world) {
    { P::begin(elements, world) } -> std::same_as<typename P::State>;
};

template <class P>
concept PartitionerHasPartition = requires(std::span<PartitionItem> items, typename P::State& state,
                                           std::span<std::size_t> cuts) {
    { P::partition(items, state, cuts) } -> std::same_as<void>;
};

template <class P>
concept PartitionerHasOptions = requires(std::span<std::size_t const> elements, std::size_t world,
                                         typename P::Options const& options) {
    { P::begin(elements, world, options) } -> std::same_as<typename P::State>;
};

/// @brief The options of a partitioner without any.
struct NoPartitionerOptions {};

/// @brief The options that a partitioner's `begin` takes.
template <class P>
struct PartitionerOptions {
    using type = NoPartitionerOptions;
};

template <PartitionerHasOptions P>
struct PartitionerOptions<P> {
    using type = typename P::Options;
};

template <class P>
using partitioner_options_t = typename PartitionerOptions<P>::type;

template <class P>
concept PartitionerHasOrder = requires(std::span<std::size_t const> elements, std::size_t world) {
    { P::order(elements, world) } -> std::same_as<std::vector<std::size_t>>;
};

} // namespace ZERO_NAMESPACE::detail

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
///
/// Optional: `begin(elements, world, options)` gets the run-time options of the engine
/// (`StageOptions::partitioner`), of the type `Options`, an aggregate with defaults. It may throw
/// InvalidArgument. What ranks must agree on is then in the cuts, which they compare.
///
/// `BalancedPartitioner` and `RoundRobinPartitioner` leave every parameter whole, and
/// `WholeMatrixPartitioner` every matrix; the others cut.
template <class P>
concept Partitioner = detail::PartitionerHasCategory<P> && detail::PartitionerHasState<P>
                      && detail::PartitionerHasCutsParameters<P>
                      && detail::PartitionerHasCutsGroup<P> && detail::PartitionerHasIsEven<P>
                      && detail::PartitionerHasBegin<P> && detail::PartitionerHasPartition<P>;

/// @brief A partitioner that also chooses the order in which the buckets of a group are filled.
///
/// `order(elements, world)` gets the sizes in gradient-ready order and returns a permutation of
/// their indices.
template <class P>
concept OrderingPartitioner = Partitioner<P> && detail::PartitionerHasOrder<P>;

/// @brief A partitioner that leaves every matrix whole and may cut other parameters, for optimizers
/// that need only matrices whole (`MatrixOptimizer`).
///
/// `begin(elements, world, rows)` also gets the rows of each matrix, 0 for other parameters.
/// `is_spread(state, index)` says which parameters of the group are cut over many ranks; they and
/// the others get buckets apart, because an extent in the middle of a parameter holds nothing else.
/// A bucket of persistent parameters may hold both.
template <class P>
concept MatrixKeepingPartitioner = Partitioner<P> && P::cuts_parameters
                                   && requires(std::span<std::size_t const> numbers,
                                               std::size_t number, typename P::State const& state) {
                                          {
                                              P::begin(numbers, number, numbers)
                                          } -> std::same_as<typename P::State>;
                                          { P::is_spread(state, number) } -> std::same_as<bool>;
                                      };

/// @brief Reports each requirement of `Partitioner` that `P` lacks as one error.
template <class P>
consteval bool diagnose_partitioner() {
    static_assert(detail::PartitionerHasCutsParameters<P>,
                  "zero: a Partitioner needs 'static constexpr bool cuts_parameters' (may a "
                  "parameter lie on several ranks?).");
    static_assert(detail::PartitionerHasCutsGroup<P>,
                  "zero: a Partitioner needs 'static constexpr bool cuts_group' (are shards cut "
                  "from the whole group, not bucket by bucket?).");
    static_assert(detail::PartitionerHasIsEven<P>,
                  "zero: a Partitioner needs 'static constexpr bool is_even' (are all extents of a "
                  "bucket equally long?).");
    static_assert(detail::PartitionerHasState<P>,
                  "zero: a Partitioner needs a copyable member type 'State' (what it carries from "
                  "bucket to bucket).");
    if constexpr (requires { typename P::State; }) {
        static_assert(detail::PartitionerHasBegin<P>,
                      "zero: a Partitioner needs 'static State begin(std::span<std::size_t const> "
                      "elements, std::size_t world)'.");
        static_assert(detail::PartitionerHasPartition<P>,
                      "zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, "
                      "State&, std::span<std::size_t> cuts)'.");
    }
    return Partitioner<P>;
}

/// @brief Returns the offset of each bucket's extent in the shard of a rank, then the size of the
/// shard. O(buckets).
///
/// A shard holds the extents of one rank one after the other, in bucket order. Buckets of other
/// types have length 0. Every sharded state is stored in this order.
[[gnu::cold]] inline std::vector<std::size_t> shard_begins(FlatLayout const& layout,
                                                           std::size_t rank, std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(
            begins.back()
            + (layout.bucket(bucket).type == type ? layout.extent(bucket, rank).size() : 0));
    }
    return begins;
}

/// @brief Returns the offset of each bucket in a replicated state, which holds whole buckets, then
/// the size of the state. O(buckets).
[[gnu::cold]] inline std::vector<std::size_t> replica_begins(FlatLayout const& layout,
                                                             std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(begins.back()
                         + (layout.bucket(bucket).type == type ? layout.elements(bucket) : 0));
    }
    return begins;
}

} // namespace ZERO_NAMESPACE
