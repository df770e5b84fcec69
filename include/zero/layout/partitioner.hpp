#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One piece of a bucket on its way through a partitioner.
struct PartitionItem {
    std::size_t index = 0;    ///< which piece; carried along when the items are reordered
    std::size_t elements = 0; ///< without padding
    std::size_t offset =
        0; ///< set by the partitioner: where it starts in the bucket, a multiple of `granularity`
};

/// @brief A policy that orders the pieces inside a bucket and cuts the bucket into one extent per
/// rank.
///
/// Trainable and frozen parameters are one group each. `begin(elements, world)` sees the sizes of a
/// whole group in the order in which its buckets are filled, and makes the `State` that goes from
/// bucket to bucket. `partition(items, state, cuts)` gets the group's pieces in that order, bucket
/// by bucket; it sets every offset and the W + 1 monotone `cuts` (cuts[0] = 0, cuts[W] = elements
/// of the bucket with padding), all multiples of `granularity`. It may reorder the items. Pure:
/// every rank gets the same.
template <class P>
concept Partitioner =
    std::same_as<typename P::policy_category, PartitionerCategory>
    && requires { typename P::Options; } && std::copy_constructible<typename P::State>
    && std::same_as<decltype(P::cuts_parameters), bool const>
    && std::same_as<decltype(P::cuts_group), bool const>
    && std::same_as<decltype(P::is_even), bool const>
    && requires(std::span<std::size_t const> elements, std::size_t world) {
           { P::begin(elements, world) } -> std::same_as<typename P::State>;
       } && requires(std::span<PartitionItem> items, typename P::State& state, std::span<std::size_t> cuts) {
           { P::partition(items, state, cuts) } -> std::same_as<void>;
       };

/// @brief A partitioner that also says in which order the buckets of a group are filled.
///
/// `order(elements, world)` gets the sizes in gradient-ready order and returns a permutation of
/// their indices.
template <class P>
concept OrderingPartitioner =
    Partitioner<P> && requires(std::span<std::size_t const> elements, std::size_t world) {
        { P::order(elements, world) } -> std::same_as<std::vector<std::size_t>>;
    };

/// @brief Reports each reason why `P` is not a `Partitioner` as one error.
template <class P>
consteval bool diagnose_partitioner() {
    static_assert(
        requires { typename P::Options; },
        "zero: a Partitioner needs a member type 'Options' (an empty struct if it has none).");
    static_assert(
        requires { requires std::same_as<decltype(P::cuts_parameters), bool const>; },
        "zero: a Partitioner needs 'static constexpr bool cuts_parameters' (may a parameter lie on "
        "several ranks?).");
    static_assert(
        requires { requires std::same_as<decltype(P::cuts_group), bool const>; },
        "zero: a Partitioner needs 'static constexpr bool cuts_group' (are shards cut from the "
        "whole group, "
        "not bucket by bucket?).");
    static_assert(
        requires { requires std::same_as<decltype(P::is_even), bool const>; },
        "zero: a Partitioner needs 'static constexpr bool is_even' (are all extents of a bucket "
        "equally long?).");
    static_assert(
        requires { requires std::copy_constructible<typename P::State>; },
        "zero: a Partitioner needs a copyable member type 'State' (what it carries from bucket to "
        "bucket).");
    if constexpr (requires { typename P::State; }) {
        static_assert(
            requires(std::span<std::size_t const> elements, std::size_t world) {
                { P::begin(elements, world) } -> std::same_as<typename P::State>;
            }, "zero: a Partitioner needs 'static State begin(std::span<std::size_t const> "
               "elements, std::size_t world)'.");
        static_assert(
            requires(std::span<PartitionItem> items, typename P::State& state,
                     std::span<std::size_t> cuts) {
                { P::partition(items, state, cuts) } -> std::same_as<void>;
            },
            "zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, State&, "
            "std::span<std::size_t> cuts)'.");
    }
    return Partitioner<P>;
}

} // namespace ZERO_NAMESPACE
