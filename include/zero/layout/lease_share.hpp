#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Parameters that the same units use, as a part of the memory of some buckets.
struct LeaseShare {
    std::size_t elements = 0;         ///< elements in these buckets, without padding
    std::size_t parameters = 0;       ///< number of parameters with elements in these buckets
    std::size_t largest = 0;          ///< the parameter with the most elements in these buckets;
                                      ///< its `units` are those of the whole share
    std::size_t largest_elements = 0; ///< elements of that parameter in these buckets
};

/// @brief Divides the content of some buckets, such as those of `LeasePlan::peak`, into shares: one
/// for each unit, and one for each set of units that share parameters. O(n log n), with n the
/// number of parameters.
/// @param buckets each once
/// @return the largest share first, equal ones in the order of their largest parameters; empty if
/// the buckets hold no elements
std::vector<LeaseShare> lease_shares(FlatLayout const& layout,
                                     std::span<std::size_t const> buckets);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/lease_share.ipp"
#endif
