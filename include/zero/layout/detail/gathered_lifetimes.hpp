#pragma once

#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../gather_options.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {
struct LeasePlan; // lease_plan.ipp includes this header
} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the units that have parameters, in the order for which memory is planned: the
/// forward pass by number, then the backward pass in the unit order of the layout. Numbers that no
/// parameter names do not separate their neighbours.
std::vector<std::size_t> used_units(FlatLayout const& layout);

/// @brief Plans the gathered buckets of one type under options other than the defaults.
///
/// The order is a forward pass by unit number and a backward pass in the unit order of the layout.
/// A unit is in flight while it is in use, while the unit before it is (two may be held at once),
/// while it is gathered in advance, and while it is kept. Under `max_live_elements` a unit is in
/// flight for its use alone, and longer only where the limit leaves room.
/// @throws InvalidArgument if the limit does not hold every unit
LeasePlan plan_gathered(FlatLayout const& layout, GatherOptions const& gather, std::size_t spares,
                        std::size_t type);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "gathered_lifetimes.ipp"
#endif
