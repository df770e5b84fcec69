#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Maps elements of buckets to offsets in a `PlacedBuffer`. Depends on no element type, so
/// it is compiled once.
class PlacedOffsets {
public:
    PlacedOffsets() = default;

    /// @param buckets number of buckets that are mapped, from the first on
    /// @param type index of the parameter type; buckets of other types occupy no space
    [[gnu::cold]] PlacedOffsets(FlatLayout const& layout, std::size_t buckets, std::size_t type,
                                std::size_t rank, Placement placement);

    /// @brief Returns the offset of element `index` of a bucket that this rank holds.
    [[nodiscard]] std::size_t at(std::size_t bucket, std::size_t index) const noexcept {
        return _storage_begin[bucket] + (index - _first[bucket]);
    }

    /// @brief The number of elements of the buffer.
    [[nodiscard]] std::size_t elements() const noexcept { return _storage_begin.back(); }

private:
    std::vector<std::size_t> _first;         ///< by bucket: index of the first held element
    std::vector<std::size_t> _storage_begin; ///< by bucket, and the end of the last
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "placed_offsets.ipp"
#endif
