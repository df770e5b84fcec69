#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/order_by.hpp"
#include "detail/place_in_bucket.hpp"
#include "padding.hpp"
#include "partitioner.hpp"
#include "range.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

struct BalancedPartitionerOptions {};

/// @brief Whole parameters are dealt by size, the largest first, each to the rank that holds least
/// so far; none is cut.
///
/// The fullest rank holds at most 4/3 - 1/(3 W) times what the best deal would give it (longest
/// processing time first: Graham, "Bounds on multiprocessing timing anomalies", 1969), but never
/// less than the largest parameter. Sizes count as rounded up to the granularity; of equal
/// parameters the lower number goes first, of equal ranks the lower rank takes. O(n log n + n W)
/// for n parameters, once.
struct BalancedPartitioner {
    using policy_category = PartitionerCategory;
    using Options = BalancedPartitionerOptions;
    struct State {
        std::vector<std::uint64_t> owners; ///< of the parameters of the group
        std::size_t next = 0;              ///< the first parameter of the next bucket
    };
    static constexpr bool cuts_parameters = false;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;

    static State begin(std::span<std::size_t const> elements, std::size_t world) {
        std::vector<std::uint64_t> descending;
        for (std::size_t const size : elements) {
            descending.push_back(std::numeric_limits<std::uint64_t>::max()
                                 - round_up(size, granularity));
        }
        State state{std::vector<std::uint64_t>(elements.size()), 0};
        std::vector<std::size_t> held(world, 0);
        for (std::size_t const index : detail::order_by(descending)) {
            std::size_t least = 0;
            for (std::size_t rank = 1; rank < world; ++rank) {
                least = held[rank] < held[least] ? rank : least;
            }
            held[least] += round_up(elements[index], granularity);
            state.owners[index] = least;
        }
        return state;
    }

    static void partition(std::span<PartitionItem> items, State& state,
                          std::span<std::size_t> cuts) {
        detail::place_by_owner(items, std::span(state.owners).subspan(state.next, items.size()),
                               cuts);
        state.next += items.size();
    }
};
static_assert(Partitioner<BalancedPartitioner>);

} // namespace ZERO_NAMESPACE
