#pragma once

// The requirements of `Partitioner` and `OrderingPartitioner`, one concept each. The concepts and
// their messages use them.

#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../partition_item.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

template <class P>
concept PartitionerHasCategory = std::same_as<typename P::policy_category, PartitionerCategory>;

template <class P>
concept PartitionerHasOptions = requires { typename P::Options; };

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
concept PartitionerHasOrder = requires(std::span<std::size_t const> elements, std::size_t world) {
    { P::order(elements, world) } -> std::same_as<std::vector<std::size_t>>;
};

} // namespace ZERO_NAMESPACE::detail
