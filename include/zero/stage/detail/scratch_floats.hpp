#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"
#include "updated_range.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the floats of scratch memory that the updates of this rank need: the maximum over
/// its parameters, because an optimizer of whole parameters updates them one by one. 0 for other
/// optimizers.
template <class Optimizer>
[[gnu::cold]] std::size_t scratch_floats([[maybe_unused]] FlatLayout const& layout,
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
