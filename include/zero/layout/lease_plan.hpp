#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "parameter_spec.hpp"
#include "piece.hpp"
#include "stage_table.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The memory that the buckets of one parameter type share while they are in flight.
///
/// Every bucket has a place, an offset in one buffer. Buckets that are in flight at once in the
/// layout's unit order have disjoint places, so the buffer is about as large as the most bytes in
/// flight, and no bucket sets the size of another's memory. Other orders find room in places that
/// are free at that moment, or in the spare places.
struct LeasePlan {
    std::vector<Range> places;       ///< by bucket, in elements; empty if it is never leased
    std::vector<std::size_t> spares; ///< sizes of the spare places, which follow the others
    std::size_t elements = 0;        ///< size of the buffer, spare places included
    std::vector<std::size_t> peak{}; ///< the buckets in flight together while they have the most
                                     ///< elements, ascending; they set the size of the buffer

    /// @brief Returns the number of elements before the spare places.
    [[nodiscard]] std::size_t planned_elements() const noexcept {
        std::size_t planned = elements;
        for (std::size_t const spare : spares) {
            planned -= spare;
        }
        return planned;
    }
};

/// @brief Returns the sum of two numbers of spare places, which may be as large as their type
/// allows.
constexpr std::size_t spare_places(std::size_t extra, std::size_t further) noexcept {
    return extra + detail::smaller(further, ~extra);
}

/// @brief Plans the gradient buckets of one type. O(n log n) for usual unit orders, with n the
/// number of trainable buckets; O(n^2) at worst.
///
/// A bucket is in flight from its first unit until the unit after the one that starts its
/// reduction: the reduction overlaps with the backward pass of one further unit. Buckets whose
/// gradients are all caller-owned have no place (`GradientSource`).
/// @param in_index_order true (stages 0 to 2): a reduction starts when the bucket and all buckets
/// before it are complete; false (stage 3): when the bucket's last unit is complete
/// @param spares number of spare places, as large as the largest buckets, for orders other than
/// the layout's; capped at the number of buckets
LeasePlan plan_gradient_leases(FlatLayout const& layout, bool in_index_order,
                               std::size_t spares = 0, std::size_t type = 0);

/// @brief Gives every trainable bucket of one type a place of its own, in which its sum over the
/// ranks replaces its gradients (`can_sum_in_leases`). O(buckets).
LeasePlan plan_gradient_sums(FlatLayout const& layout, std::size_t type = 0);

/// @brief Plans the gathered parameter buckets of one type. Same complexity.
///
/// Stage 3: a bucket is in flight while one of its units, or a neighbour of it, is in use, so the
/// next unit can be gathered meanwhile. Neighbours are consecutive in the forward pass, which
/// visits the units by number, or in the backward pass, which visits them in the layout's unit
/// order. `gather` adds units that are gathered further ahead and buckets that are kept, and limits
/// their sum. Other stages: buckets that are communicated through a copy are in flight one at a
/// time.
/// @param spares as for gradients; stage 3 only
/// @throws InvalidArgument if `max_live_elements` does not hold the largest unit
LeasePlan plan_parameter_leases(FlatLayout const& layout, StageRow const& row, Storage storage,
                                std::size_t spares = 0, std::size_t type = 0,
                                GatherOptions const& gather = {});

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/leases/lease_plan.ipp"
#endif
