#pragma once

#include "../core/detail/namespace.hpp"
#include "element_sizes.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "parameter_spec.hpp"
#include "stage_table.hpp"

#include <cstddef>
#include <span>
#include <string>
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

/// @brief Names the units and parameters that set the size of the leases of one parameter type, for
/// instance
///
///     gradient leases (1.49 GB) at their peak:
///       unit 33: 1.05 GB in 2 parameters, the largest is 'head' with 1.05 GB
///       unit 32: 436.22 MB in 9 parameters, the largest is 'layer31.gate' with 117.44 MB
///
/// At the peak the most elements are in flight. The lines of a buffer sum up to its size: padding,
/// gaps between places and spare places follow the three largest units. Copies of caller-owned
/// gradients are a buffer of their own. If all parameters are in one unit, as they do by default, a
/// line states the cost. Another says why a rank that holds the sums of all gradients also leases
/// gradients. Same complexity as the lease plans, and O(n log n) in the parameters.
/// @param sizes of gradients, their sums, and parameters
/// @param spares number of spare places, as for the lease plans
/// @param gather the options of stage 3, as for the lease plans
/// @param sums_in_leases whether sums replace gradients, so gradients have no leases
/// (`can_sum_in_leases`)
/// @param reads_in_place whether caller-owned gradients are reduced without copies
/// @return lines that end with a line break; empty if nothing is leased
[[nodiscard]] std::string describe_leases(FlatLayout const& layout, StageRow const& row,
                                          ElementSizes const& sizes, Storage storage,
                                          std::size_t spares = 0, std::size_t type = 0,
                                          GatherOptions const& gather = {},
                                          bool sums_in_leases = false, bool reads_in_place = false);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/leases/lease_share.ipp"
#endif
