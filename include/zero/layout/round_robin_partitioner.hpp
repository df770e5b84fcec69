#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Assigns whole parameters to the ranks in turn, in gradient-ready order. Cuts no
/// parameter. O(items * log(items)) per bucket.
///
/// The shards are as uneven as the parameters: for GPT-2 124M the fullest of 8 ranks holds 4.1
/// times the mean, and the fullest of 64 ranks 20.8 times. It serves optimizers that need whole
/// matrices. So does `BalancedPartitioner`, which also considers sizes.
struct RoundRobinPartitioner {
    using policy_category = PartitionerCategory;
    struct State {
        std::size_t turn = 0; ///< number of parameters assigned so far
    };
    static constexpr bool cuts_parameters = false;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept {
        return {};
    }

    [[gnu::cold]] static void partition(std::span<PartitionItem> items, State& state,
                                        std::span<std::size_t> cuts) {
        std::size_t const world = cuts.size() - 1;
        std::vector<std::uint64_t> owners;
        for (std::size_t index = 0; index < items.size(); ++index) {
            owners.push_back(state.turn++ % world);
        }
        detail::place_by_owner(items, owners, cuts);
    }
};
static_assert(Partitioner<RoundRobinPartitioner>);

} // namespace ZERO_NAMESPACE
