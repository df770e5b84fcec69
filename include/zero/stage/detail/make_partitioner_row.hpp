#pragma once

#include "../../core/detail/namespace.hpp"
#include "../partitioner_row.hpp"
#include "accepts_bucketer.hpp"
#include "composition_conflict.hpp"
#include "conflict.hpp"
#include "serves_adopted_block.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Derives the row of `partitioner_table` for a partitioner from the same rules that refuse
/// a composition.
template <class P>
constexpr PartitionerRow make_partitioner_row(char const* name) noexcept {
    PartitionerRow row{
        name, P::is_even, !P::cuts_parameters, !accepts_bucketer<P, void>, serves_adopted_block<P>,
        {}};
    for (int stage = 0; stage < 4; ++stage) {
        row.stages[static_cast<std::size_t>(stage)] =
            conflict_of({.stage = stage,
                         .partitioner_cuts_parameters = P::cuts_parameters,
                         .partitioner_cuts_group = P::cuts_group})
            == Conflict::none;
    }
    return row;
}

} // namespace ZERO_NAMESPACE::detail
