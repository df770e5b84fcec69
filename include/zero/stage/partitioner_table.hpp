#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/balanced_partitioner.hpp"
#include "../layout/contiguous_partitioner.hpp"
#include "../layout/dealt_group_partitioner.hpp"
#include "../layout/per_tensor_partitioner.hpp"
#include "../layout/round_robin_partitioner.hpp"
#include "../layout/whole_group_partitioner.hpp"
#include "detail/composition_conflict.hpp"
#include "detail/stage_config.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief What a partitioner goes with.
struct PartitionerRow {
    char const* name;      ///< as the type is called
    bool is_even;          ///< every bucket takes the native collectives
    bool keeps_parameters; ///< none is cut: serves optimizers that need whole parameters in every
                           ///< stage
    bool chooses_bucketer; ///< it brings its own, and no other can be given
    bool serves_adopted_block;  ///< Storage::adopted
    std::array<bool, 4> stages; ///< which stages accept it, with the default bucketer
};

namespace detail {

template <class P>
constexpr PartitionerRow row_of(char const* name) noexcept {
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

} // namespace detail

/// @brief Every shipped partitioner; docs/partitioners.md says which to choose.
inline constexpr std::array<PartitionerRow, 6> partitioner_table{{
    detail::row_of<ContiguousPartitioner>("ContiguousPartitioner"),
    detail::row_of<PerTensorPartitioner>("PerTensorPartitioner"),
    detail::row_of<WholeGroupPartitioner>("WholeGroupPartitioner"),
    detail::row_of<DealtGroupPartitioner>("DealtGroupPartitioner"),
    detail::row_of<RoundRobinPartitioner>("RoundRobinPartitioner"),
    detail::row_of<BalancedPartitioner>("BalancedPartitioner"),
}};

} // namespace ZERO_NAMESPACE
