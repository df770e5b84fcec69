#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/place_in_bucket.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

struct ContiguousPartitionerOptions {};

/// @brief Every bucket is cut into W equal contiguous shards, so that native reduce-scatter and
/// all-gather serve, in place. O(items).
///
/// (ZeRO, section 5: each rank owns 1/W. Cutting bucket by bucket instead of the whole flat group
/// keeps each bucket's shares equal.)
struct ContiguousPartitioner {
    using policy_category = PartitionerCategory;
    using Options = ContiguousPartitionerOptions;
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
