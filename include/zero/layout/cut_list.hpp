#pragma once

#include "../core/detail/namespace.hpp"
#include "cuts.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Lists the cuts of a bucket for a collective. Owns the memory for W + 1 offsets.
class CutList {
public:
    /// @param world number of ranks
    explicit CutList(std::size_t world) : _offsets(world + 1, 0) {}

    /// @brief Returns the offsets. They are valid until the next call, and no longer than `cuts`.
    ///
    /// No call allocates. O(W) for equal extents of another length than in the last call, otherwise
    /// O(1).
    [[nodiscard]] std::span<std::size_t const> of(Cuts cuts) noexcept {
        if (!cuts.is_even()) {
            return cuts.listed();
        }
        if (_offsets.back() != cuts.back()) {
            for (std::size_t rank = 0; rank < _offsets.size(); ++rank) {
                _offsets[rank] = cuts[rank];
            }
        }
        return detail::as_span(_offsets);
    }

private:
    std::vector<std::size_t> _offsets; ///< cuts of the last equal extents
};

} // namespace ZERO_NAMESPACE
