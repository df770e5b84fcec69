#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "array_kind.hpp"
#include "held_slice.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The slices of one array of the training state (parameters, master weights, a moment, ...)
/// that this rank holds. A view: it owns no state.
struct HeldArray {
    std::size_t type = 0; ///< index of the parameter type
    ArrayForm form{};
    bool has_frozen = false; ///< whether frozen parameters have this array
    List<HeldSlice> slices{};

    /// @brief Returns the bytes of the first `elements` elements of a parameter. Extents end at
    /// multiples of 64 elements.
    [[nodiscard]] std::size_t bytes(std::size_t elements) const noexcept {
        return form.bytes(elements);
    }

    /// @brief Whether a parameter has such an array.
    [[nodiscard]] bool has(FlatLayout const& layout, std::size_t parameter) const;

    /// @brief Returns the bytes of the largest parameter.
    [[gnu::cold]] [[nodiscard]] std::size_t largest(FlatLayout const& layout) const;

    /// @brief Returns the slices in ascending order of their parameters and offsets.
    [[gnu::cold]] [[nodiscard]] List<HeldSlice> by_parameter() const;

    /// @brief Returns where each rank's slice of a parameter ends, in bytes: W + 1 offsets. The
    /// parameter must lie in one bucket.
    [[gnu::cold]] [[nodiscard]] std::vector<std::size_t> byte_cuts(FlatLayout const& layout,
                                                                   std::size_t parameter) const;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "held_array.ipp"
#endif
