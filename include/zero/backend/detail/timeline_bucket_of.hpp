#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/timeline_bucket.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>
#include <cstdio>

namespace ZERO_NAMESPACE::detail {

/// @brief Appends the name of a unit, or "unit 3", as far as there is room.
/// @return the length of the text
inline std::size_t append_unit(TimelineBucket& to, std::size_t length, char const* before,
                               FlatLayout const& layout, std::size_t unit) noexcept {
    std::size_t const room = to.units.size() - length;
    char const* const name = layout.unit_name(unit);
    int const written =
        name != nullptr ? std::snprintf(to.units.data() + length, room, "%s%s", before, name)
                        : std::snprintf(to.units.data() + length, room, "%sunit %zu", before, unit);
    return smaller(length + static_cast<std::size_t>(written), to.units.size() - 1);
}

/// @brief Returns the number and the units of a bucket, without an allocation. O(pieces).
[[nodiscard]] inline TimelineBucket timeline_bucket_of(FlatLayout const& layout,
                                                       std::size_t bucket) noexcept {
    TimelineBucket result;
    result.number = bucket;
    std::size_t first = layout.units();
    std::size_t last = 0;
    for (Piece const& piece : layout.pieces(bucket)) {
        for (std::size_t const unit : layout.parameter(piece.parameter).units) {
            first = smaller(first, unit);
            last = larger(last, unit);
        }
    }
    if (first < layout.units()) {
        std::size_t const length = append_unit(result, 0, "", layout, first);
        if (last != first) {
            (void)append_unit(result, length, " to ", layout, last);
        }
    }
    return result;
}

} // namespace ZERO_NAMESPACE::detail
