#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "piece.hpp"
#include "stage_table.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The memory from which the gradients of a bucket are reduced.
enum class GradientSource : std::uint8_t {
    lease, ///< a lease, from the first writer to the reduction
    copy,  ///< a copy, made directly before the reduction: all gradients are caller-owned
    block  ///< the caller's block of gradients, without a copy
};

/// @brief Returns the source of a bucket's gradients. O(pieces of the bucket).
GradientSource gradient_source(FlatLayout const& layout, std::size_t bucket);

/// @brief Returns whether the gradients are in one caller-owned block. `make_stage_layout` finds it
/// for all trainable parameters at once, and the ranks agree on it.
bool has_gradient_block(FlatLayout const& layout);

/// @brief Returns whether a rank holds the sums of all gradients, and not only its share.
bool holds_all_sums(FlatLayout const& layout, StageRow const& row);

/// @brief Returns whether the sums of a type's gradients can be where the gradients are written,
/// given that they have the same type and a step has one micro-step
/// (`GradientReductionOptions::one_micro_step`): `holds_all_sums`, no gradient is in the caller's
/// block, and none is written after its bucket. O(pieces).
bool can_sum_in_leases(FlatLayout const& layout, StageRow const& row, std::size_t type = 0);

/// @brief Returns the elements that follow a bucket's own in its lease, padding included: room for
/// the whole gradients of the parameters that are in several buckets, this one the last of them,
/// and whose gradients are not caller-owned. Only an adopted block has such parameters.
std::size_t whole_gradient_elements(FlatLayout const& layout, std::size_t bucket);

/// @brief Returns the part of them that belongs to the parameter of a piece: all if this is its
/// last piece, otherwise 0.
std::size_t whole_gradient_elements(FlatLayout const& layout, PiecePosition at);

/// @brief Returns the size of the largest bucket of a type whose gradients are copied before their
/// reduction, padding included. The engine has one buffer for such copies.
std::size_t copied_gradient_elements(FlatLayout const& layout, std::size_t type = 0);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/leases/gradient_source.ipp"
#endif
