#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "placement.hpp"
#include "storage.hpp"
#include "wire_chunk.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The elements of one type in a layout, from the point of view of one rank. `plan_memory`
/// needs nothing else of a layout.
struct LayoutTotals {
    std::size_t all_content = 0;           ///< parameters, frozen ones included
    std::size_t all_padded = 0;            ///< the same with padding
    std::size_t trainable_content = 0;     ///< trainable parameters
    std::size_t trainable_padded = 0;      ///< the same with padding
    std::size_t own_content = 0;           ///< this rank's extents of all buckets
    std::size_t own_padded = 0;            ///< the same with padding
    std::size_t own_trainable_content = 0; ///< this rank's extents of the trainable buckets
    std::size_t own_trainable_padded = 0;  ///< the same with padding

    /// @brief Blocks of 64 elements in the trainable slices of all ranks. Blocks are counted from
    /// the start of each slice, and the last block of a slice may be shorter.
    std::size_t trainable_blocks = 0;

    std::size_t own_trainable_blocks = 0;     ///< the same in this rank's extents
    std::size_t largest_bucket_elements = 0;  ///< the largest trainable bucket, padding included
    std::size_t wire_elements = 0;            ///< the buffer through which gradients are sent
    std::size_t gradient_lease_elements = 0;  ///< buckets in flight, spare places and the buffer
                                              ///< for copies of caller-owned gradients included;
                                              ///< set it to 0 for an engine whose sums replace
                                              ///< gradients (`can_sum_in_leases`)
    std::size_t parameter_lease_elements = 0; ///< the same for gathered and copied buckets
};

/// @brief Counts the buckets of one type for one rank. O(pieces).
/// @param extra_leases number of spare places in the pools whose size depends on the order of use:
/// gradients, and in stage 3 gathered units; see `LeasePlan`
/// @param further_leases spare places added to those
/// @param wire_capacity elements of the communication type; see `wire_elements`
/// @param gather the options of stage 3 that change the leases of parameters
/// @throws InvalidArgument if there is no such rank, or as `plan_parameter_leases`
LayoutTotals count_layout(FlatLayout const& layout, std::size_t rank, StageRow const& row,
                          Storage storage, std::size_t extra_leases, std::size_t type = 0,
                          std::size_t further_leases = 0,
                          std::size_t wire_capacity = default_wire_elements,
                          GatherOptions const& gather = {});

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/layout_totals.ipp"
#endif
