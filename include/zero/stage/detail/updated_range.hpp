#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"

#include <cstddef>

/// What an optimizer of whole parameters needs of the geometry.
namespace ZERO_NAMESPACE::detail {

/// @brief The part of a bucket that a rank updates.
inline Range updated_range(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                           StageRow const& row) {
    return row.shards_optimizer() ? layout.extent(bucket, rank) : Range{0, layout.elements(bucket)};
}

/// @brief Floats of scratch memory for the updates of this rank: the most that one parameter needs,
/// since they are updated one by one.
template <class Optimizer>
std::size_t scratch_floats([[maybe_unused]] FlatLayout const& layout,
                           [[maybe_unused]] std::size_t rank,
                           [[maybe_unused]] StageRow const& row) {
    std::size_t most = 0;
    if constexpr (Optimizer::whole_tensor) {
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            layout.for_slices(
                bucket, updated_range(layout, bucket, rank, row), [&](Piece const& piece) {
                    auto const& spec = layout.parameter(piece.parameter);
                    most = larger(most, Optimizer::scratch_floats(
                                            spec.rows, spec.rows == 0 ? spec.elements
                                                                      : spec.elements / spec.rows));
                });
        }
    }
    return most;
}

} // namespace ZERO_NAMESPACE::detail
