#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/order_by.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "padding.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Assigns whole parameters to ranks by size: the largest first, each to the rank that holds
/// the least so far. Cuts no parameter.
///
/// The fullest rank holds at most 4/3 - 1/(3 W) times as much as under the best assignment (longest
/// processing time first: Graham, "Bounds on multiprocessing timing anomalies", 1969), but never
/// less than the largest parameter. Sizes include padding. Ties go to the lower parameter index and
/// the lower rank. O(n log n + n W) once for n parameters.
struct BalancedPartitioner {
    using policy_category = PartitionerCategory;
    struct State {
        std::vector<std::uint64_t> owners; ///< rank of each parameter of the group
        std::size_t next = 0;              ///< first parameter of the next bucket
    };
    static constexpr bool cuts_parameters = false;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;

    [[gnu::cold]] static State begin(std::span<std::size_t const> elements, std::size_t world) {
        std::vector<std::uint64_t> descending;
        for (std::size_t const size : elements) {
            descending.push_back(std::numeric_limits<std::uint64_t>::max() - padded_size(size));
        }
        State state{std::vector<std::uint64_t>(elements.size()), 0};
        std::vector<std::size_t> held(world, 0);
        for (std::size_t const index : detail::order_by(descending)) {
            std::size_t least = 0;
            for (std::size_t rank = 1; rank < world; ++rank) {
                least = held[rank] < held[least] ? rank : least;
            }
            held[least] += padded_size(elements[index]);
            state.owners[index] = least;
        }
        return state;
    }

    [[gnu::cold]] static void partition(std::span<PartitionItem> items, State& state,
                                        std::span<std::size_t> cuts) {
        detail::place_by_owner(items, std::span(state.owners).subspan(state.next, items.size()),
                               cuts);
        state.next += items.size();
    }
};
static_assert(Partitioner<BalancedPartitioner>);

} // namespace ZERO_NAMESPACE
