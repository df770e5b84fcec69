#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../range.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {
struct LeasePlan; // lease_plan.ipp includes this header
} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Gives buckets places in one buffer, so that buckets with a common step do not overlap.
///
/// Buckets with equal lifetimes are placed as one block. Blocks are placed twice, in the order of
/// size and in that of duration, largest first, each at the lowest offset that is free during its
/// lifetime; the smaller buffer wins. (Greedy by size is usual in planners of tensor memory:
/// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.)
/// @param lifetimes by bucket: ascending, disjoint ranges of steps below `steps`; empty if the
/// bucket needs no place
/// @param spares number of spare places to append
/// @param further by bucket: elements of its place behind its own; empty: none
LeasePlan place_leases(FlatLayout const& layout, List<List<Range>> const& lifetimes,
                       std::size_t steps, std::size_t spares,
                       std::span<std::size_t const> further = {});

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "place_leases.ipp"
#endif
