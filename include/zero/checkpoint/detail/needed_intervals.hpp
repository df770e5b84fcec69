#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../manifest.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The intervals of a checkpoint that overlap what a rank holds. As `KeepIntervals` it drops
/// the others.
class NeededIntervals {
public:
    /// @param layout and `table` must outlive this object
    NeededIntervals(FlatLayout const& layout, StateTable const& table);

    void operator()(ManifestParameter& stored) const;

private:
    FlatLayout const* _layout;
    StateTable const* _table;
    std::vector<std::size_t> _by_name; ///< parameters of the layout, sorted by their stored name
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "needed_intervals.ipp"
#endif
