#pragma once

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
    std::size_t elements = 0;
    std::size_t offset = 0;   ///< set by the partitioner: where it starts in the bucket, a multiple of `granularity`
};

/// @brief A policy that orders the pieces inside a bucket and cuts the bucket into one extent per rank.
///
/// `partition(items, turn, cuts)` sets every offset and the W + 1 monotone `cuts` (cuts[0] = 0, cuts[W] = elements of the bucket with
/// padding). It may reorder the items. `turn` starts at 0 and is carried from bucket to bucket. Pure: every rank gets the same.
template <class P>
concept Partitioner = std::same_as<typename P::policy_category, PartitionerCategory> && requires { typename P::Options; }
                   && std::same_as<decltype(P::cuts_parameters), bool const> && std::same_as<decltype(P::is_even), bool const>
                   && requires(std::span<PartitionItem> items, std::size_t& turn, std::span<std::size_t> cuts) {
                          { P::partition(items, turn, cuts) } -> std::same_as<void>;
                      };

/// @brief Reports each reason why `P` is not a `Partitioner` as one error.
template <class P>
consteval bool diagnose_partitioner() {
    static_assert(requires { typename P::Options; }, "zero: a Partitioner needs a member type 'Options' (an empty struct if it has none).");
    static_assert(requires { requires std::same_as<decltype(P::cuts_parameters), bool const>; },
                  "zero: a Partitioner needs 'static constexpr bool cuts_parameters' (may a parameter lie on several ranks?).");
    static_assert(requires { requires std::same_as<decltype(P::is_even), bool const>; },
                  "zero: a Partitioner needs 'static constexpr bool is_even' (are all extents of a bucket equally long?).");
    static_assert(requires(std::span<PartitionItem> items, std::size_t& turn, std::span<std::size_t> cuts) {
                      { P::partition(items, turn, cuts) } -> std::same_as<void>;
                  },
                  "zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, std::size_t& turn, std::span<std::size_t> cuts)'.");
    return Partitioner<P>;
}

namespace detail {

/// @brief Orders the items by owner, so that what a rank owns is one extent of the bucket, and cuts there.
inline void place_by_owner(std::span<PartitionItem> items, std::span<std::uint64_t const> owners, std::span<std::size_t> cuts) {
    std::vector<PartitionItem> const unordered(items.begin(), items.end());
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
    static constexpr bool cuts_parameters = true;
    static constexpr bool is_even = true;

    static void partition(std::span<PartitionItem> items, std::size_t& /*turn*/, std::span<std::size_t> cuts) {
        std::size_t end = 0;
        for (auto& item : items) {
            item.offset = end;
            end += round_up(item.elements, granularity);
        }
        std::size_t const world = cuts.size() - 1;
        std::size_t const shard = round_up((end + world - 1) / world, granularity);
        for (std::size_t rank = 0; rank <= world; ++rank) {
            cuts[rank] = rank * shard;
        }
    }
};
static_assert(Partitioner<ContiguousPartitioner>);

struct RoundRobinPartitionerOptions {};

/// @brief Whole parameters are dealt to the ranks in turn, in gradient-ready order; none is cut. O(items * log(items)).
///
/// Uneven where parameters are: for GPT-2 124M the fullest of 8 ranks holds 4.1 times the mean, of 64 ranks 20.8 times. It serves
/// optimizers that need whole matrices.
struct RoundRobinPartitioner {
    using policy_category = PartitionerCategory;
    using Options = RoundRobinPartitionerOptions;
    static constexpr bool cuts_parameters = false;
    static constexpr bool is_even = false;

    static void partition(std::span<PartitionItem> items, std::size_t& turn, std::span<std::size_t> cuts) {
        std::size_t const world = cuts.size() - 1;
        std::vector<std::uint64_t> owners;
        for (std::size_t index = 0; index < items.size(); ++index) {
            owners.push_back(turn++ % world);
        }
        detail::place_by_owner(items, owners, cuts);
    }
};
static_assert(Partitioner<RoundRobinPartitioner>);

} // namespace zero
