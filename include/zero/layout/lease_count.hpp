#pragma once

// The number of leases that each pool of an engine needs. `count_layout` derives memory from these
// numbers.

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Returns the number of leases in a pool: `needed + extra`, but at most 2 * buckets + 1.
///
/// More leases could not be used. Two per bucket and one more keep all buckets of one micro-step in
/// flight while all buckets of the next one are open.
/// @param needed at most 2 * buckets + 1
constexpr std::size_t lease_count(std::size_t needed, std::size_t extra,
                                  std::size_t buckets) noexcept {
    return detail::smaller(extra, 2 * buckets + 1 - needed) + needed;
}

/// @brief Returns how many gradient buckets of a type are open at once, at most, when units finish
/// in the layout's `unit_order`. O(units * buckets of a unit).
///
/// A bucket opens with the first of its units.
/// @param in_index_order true (stages 0 to 2): a bucket closes when it and all buckets before it
/// are complete; false (stage 3): it closes with the last of its units
std::size_t most_open_buckets(FlatLayout const& layout, bool in_index_order, std::size_t type = 0);

/// @brief Returns the largest number of buckets of a type that one unit needs at once.
std::size_t most_buckets_of_a_unit(FlatLayout const& layout, std::size_t type = 0);

/// @brief Returns the size of the largest bucket of a type among the first `buckets` of the layout,
/// padding included.
std::size_t largest_bucket(FlatLayout const& layout, std::size_t buckets, std::size_t type = 0);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/lease_count.ipp"
#endif
