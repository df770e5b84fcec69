#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <cstdint>
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

    static State begin(std::span<std::size_t const> elements, std::size_t world);
    static void partition(std::span<PartitionItem> items, State& state,
                          std::span<std::size_t> cuts);
};
static_assert(Partitioner<BalancedPartitioner>);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/balanced_partitioner.ipp"
#endif
