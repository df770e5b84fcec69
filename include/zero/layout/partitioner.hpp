#pragma once

#include "../core/list.hpp"
#include "../core/policy_category.hpp"
#include "order_by.hpp"
#include "range.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero {

/// @brief Parameters start and shards are cut at multiples of this many elements.
///
/// 128 bytes at 16 bit: vector loads and 16-byte transport paths survive at any world size. It is also the leaf of the exact norm,
/// so that no leaf is split between ranks.
inline constexpr std::size_t granularity = 64;

/// @brief One piece of a bucket on its way through a partitioner.
struct PartitionItem {
    std::size_t index = 0;    ///< which piece; carried along when the items are reordered
    std::size_t elements = 0; ///< without padding
    std::size_t offset = 0;   ///< set by the partitioner: where it starts in the bucket, a multiple of `granularity`
};

/// @brief A policy that orders the pieces inside a bucket and cuts the bucket into one extent per rank.
///
/// Trainable and frozen parameters are one group each. `begin(elements, world)` sees the sizes of a whole group in the order in which its
/// buckets are filled, and makes the `State` that goes from bucket to bucket. `partition(items, state, cuts)` gets the group's pieces in
/// that order, bucket by bucket; it sets every offset and the W + 1 monotone `cuts` (cuts[0] = 0, cuts[W] = elements of the bucket with
/// padding), all multiples of `granularity`. It may reorder the items. Pure: every rank gets the same.
template <class P>
concept Partitioner = std::same_as<typename P::policy_category, PartitionerCategory> && requires { typename P::Options; }
                   && std::copy_constructible<typename P::State> && std::same_as<decltype(P::cuts_parameters), bool const>
                   && std::same_as<decltype(P::cuts_group), bool const> && std::same_as<decltype(P::is_even), bool const>
                   && requires(std::span<std::size_t const> elements, std::size_t world) {
                          { P::begin(elements, world) } -> std::same_as<typename P::State>;
                      }
                   && requires(std::span<PartitionItem> items, typename P::State& state, std::span<std::size_t> cuts) {
                          { P::partition(items, state, cuts) } -> std::same_as<void>;
                      };

/// @brief A partitioner that also says in which order the buckets of a group are filled.
///
/// `order(elements, world)` gets the sizes in gradient-ready order and returns a permutation of their indices.
template <class P>
concept OrderingPartitioner = Partitioner<P> && requires(std::span<std::size_t const> elements, std::size_t world) {
    { P::order(elements, world) } -> std::same_as<std::vector<std::size_t>>;
};

/// @brief Reports each reason why `P` is not a `Partitioner` as one error.
template <class P>
consteval bool diagnose_partitioner() {
    static_assert(requires { typename P::Options; }, "zero: a Partitioner needs a member type 'Options' (an empty struct if it has none).");
    static_assert(requires { requires std::same_as<decltype(P::cuts_parameters), bool const>; },
                  "zero: a Partitioner needs 'static constexpr bool cuts_parameters' (may a parameter lie on several ranks?).");
    static_assert(requires { requires std::same_as<decltype(P::cuts_group), bool const>; },
                  "zero: a Partitioner needs 'static constexpr bool cuts_group' (are shards cut from the whole group, "
                  "not bucket by bucket?).");
    static_assert(requires { requires std::same_as<decltype(P::is_even), bool const>; },
                  "zero: a Partitioner needs 'static constexpr bool is_even' (are all extents of a bucket equally long?).");
    static_assert(requires { requires std::copy_constructible<typename P::State>; },
                  "zero: a Partitioner needs a copyable member type 'State' (what it carries from bucket to bucket).");
    if constexpr (requires { typename P::State; }) {
        static_assert(requires(std::span<std::size_t const> elements, std::size_t world) {
                          { P::begin(elements, world) } -> std::same_as<typename P::State>;
                      },
                      "zero: a Partitioner needs 'static State begin(std::span<std::size_t const> elements, std::size_t world)'.");
        static_assert(requires(std::span<PartitionItem> items, typename P::State& state, std::span<std::size_t> cuts) {
                          { P::partition(items, state, cuts) } -> std::same_as<void>;
                      },
                      "zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, State&, std::span<std::size_t> cuts)'.");
    }
    return Partitioner<P>;
}

namespace detail {

/// @brief Places the items one after the other and returns where the last ends.
inline std::size_t place_in_order(std::span<PartitionItem> items) {
    std::size_t end = 0;
    for (auto& item : items) {
        item.offset = end;
        end += round_up(item.elements, granularity);
    }
    return end;
}

/// @brief The length of each of W equal shards of `elements`.
constexpr std::size_t equal_shard(std::size_t elements, std::size_t world) noexcept {
    return round_up((elements + world - 1) / world, granularity);
}

/// @brief Places the items one after the other and cuts them into W equal shards.
inline void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts) {
    std::size_t const world = cuts.size() - 1;
    std::size_t const shard = equal_shard(place_in_order(items), world);
    for (std::size_t rank = 0; rank <= world; ++rank) {
        cuts[rank] = rank * shard;
    }
}

/// @brief Orders the items by owner, so that what a rank owns is one extent of the bucket, and cuts there.
inline void place_by_owner(std::span<PartitionItem> items, std::span<std::uint64_t const> owners, std::span<std::size_t> cuts) {
    List<PartitionItem> const unordered{std::span<PartitionItem const>(items)};
    std::vector<std::size_t> const order = order_by(owners);
    std::size_t end = 0;
    std::size_t placed = 0;
    cuts[0] = 0;
    for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
        for (; placed < order.size() && owners[order[placed]] == rank; ++placed) {
            items[placed] = unordered[order[placed]];
            items[placed].offset = end;
            end += round_up(items[placed].elements, granularity);
        }
        cuts[rank + 1] = end;
    }
}

} // namespace detail

struct ContiguousPartitionerOptions {};

/// @brief Every bucket is cut into W equal contiguous shards, so that native reduce-scatter and all-gather serve, in place. O(items).
///
/// (ZeRO, section 5: each rank owns 1/W. Cutting bucket by bucket instead of the whole flat group keeps each bucket's shares equal.)
struct ContiguousPartitioner {
    using policy_category = PartitionerCategory;
    using Options = ContiguousPartitionerOptions;
    struct State {};
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = true;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept { return {}; }
    static void partition(std::span<PartitionItem> items, State& /*state*/, std::span<std::size_t> cuts) {
        detail::cut_evenly(items, cuts);
    }
};
static_assert(Partitioner<ContiguousPartitioner>);

struct RoundRobinPartitionerOptions {};

/// @brief Whole parameters are dealt to the ranks in turn, in gradient-ready order; none is cut. O(items * log(items)).
///
/// Uneven where parameters are: for GPT-2 124M the fullest of 8 ranks holds 4.1 times the mean, of 64 ranks 20.8 times. It serves
/// optimizers that need whole matrices; `BalancedPartitioner` does, too, and deals by size.
struct RoundRobinPartitioner {
    using policy_category = PartitionerCategory;
    using Options = RoundRobinPartitionerOptions;
    struct State {
        std::size_t turn = 0; ///< parameters dealt so far
    };
    static constexpr bool cuts_parameters = false;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept { return {}; }

    static void partition(std::span<PartitionItem> items, State& state, std::span<std::size_t> cuts) {
        std::size_t const world = cuts.size() - 1;
        std::vector<std::uint64_t> owners;
        for (std::size_t index = 0; index < items.size(); ++index) {
            owners.push_back(state.turn++ % world);
        }
        detail::place_by_owner(items, owners, cuts);
    }
};
static_assert(Partitioner<RoundRobinPartitioner>);

} // namespace zero
