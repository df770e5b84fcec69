#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/range.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the range of a bucket that a rank updates.
inline Range updated_range(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                           StageRow const& row) {
    return row.shards_optimizer() ? layout.extent(bucket, rank) : Range{0, layout.elements(bucket)};
}

} // namespace ZERO_NAMESPACE::detail
