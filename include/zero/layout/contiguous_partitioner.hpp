#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief Cuts every bucket into W equal contiguous extents, which native reduce-scatter and
/// all-gather serve in place. The default. O(items) per bucket.
///
/// Each rank owns 1/W of the model (ZeRO, section 5). The cut is made per bucket and not once for
/// the whole flat group, so that the extents of each bucket are equal.
struct ContiguousPartitioner {
    using policy_category = PartitionerCategory;
    struct State {};
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = true;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept {
        return {};
    }
    static void partition(std::span<PartitionItem> items, State& /*state*/,
                          std::span<std::size_t> cuts) {
        detail::cut_evenly(items, cuts);
    }
};
static_assert(Partitioner<ContiguousPartitioner>);

} // namespace ZERO_NAMESPACE
