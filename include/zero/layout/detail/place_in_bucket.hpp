#pragma once

// Functions that place the items of one bucket and cut it, for the shipped partitioners.

#include "../../core/detail/namespace.hpp"
#include "../partition_item.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Places the items one after the other and returns the end of the last one, padding
/// included.
std::size_t place_in_order(std::span<PartitionItem> items);

/// @brief Places the items in order and cuts the bucket into W equal extents.
void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts);

/// @brief Orders the items by owner and cuts the bucket where the owner changes. Items of one owner
/// keep their order.
void place_by_owner(std::span<PartitionItem> items, std::span<std::uint64_t const> owners,
                    std::span<std::size_t> cuts);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "place_in_bucket.ipp"
#endif
