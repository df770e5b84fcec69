#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/balanced_partitioner.hpp"
#include "../layout/contiguous_partitioner.hpp"
#include "../layout/dealt_group_partitioner.hpp"
#include "../layout/per_tensor_partitioner.hpp"
#include "../layout/proportional_partitioner.hpp"
#include "../layout/round_robin_partitioner.hpp"
#include "../layout/whole_group_partitioner.hpp"
#include "../layout/whole_matrix_partitioner.hpp"
#include "detail/compose/composition_conflict.hpp"
#include "detail/compose/is_accepted.hpp"
#include "detail/registration/make_stage_layout.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A row of `partitioner_table`: the stages and features that a partitioner supports.
struct PartitionerRow {
    char const* name;           ///< name of the type
    bool is_even;               ///< cuts every bucket evenly, for native collectives
    bool keeps_parameters;      ///< cuts no parameter, so it serves optimizers that need whole
                                ///< parameters in every stage
    bool keeps_matrices;        ///< cuts no matrix, so it serves those that need only these whole
    bool chooses_bucketer;      ///< requires its own bucketer and accepts no other
    bool serves_adopted_block;  ///< works with Storage::adopted
    std::array<bool, 4> stages; ///< the stages that accept it, with the default bucketer
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Derives the row of `partitioner_table` for a partitioner from the same rules that refuse
/// a composition.
template <class P>
constexpr PartitionerRow make_partitioner_row(char const* name) noexcept {
    PartitionerRow row{name,
                       P::is_even,
                       !P::cuts_parameters,
                       !P::cuts_parameters || MatrixKeepingPartitioner<P>,
                       !accepts_bucketer<P, void>,
                       serves_adopted_block<P>,
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

namespace ZERO_NAMESPACE {

/// @brief The compatibility of every partitioner of the library; docs/partitioners.md says which
/// one to choose.
inline constexpr std::array<PartitionerRow, 8> partitioner_table{{
    detail::make_partitioner_row<ContiguousPartitioner>("ContiguousPartitioner"),
    detail::make_partitioner_row<PerTensorPartitioner>("PerTensorPartitioner"),
    detail::make_partitioner_row<WholeGroupPartitioner>("WholeGroupPartitioner"),
    detail::make_partitioner_row<DealtGroupPartitioner>("DealtGroupPartitioner"),
    detail::make_partitioner_row<ProportionalPartitioner>("ProportionalPartitioner"),
    detail::make_partitioner_row<RoundRobinPartitioner>("RoundRobinPartitioner"),
    detail::make_partitioner_row<BalancedPartitioner>("BalancedPartitioner"),
    detail::make_partitioner_row<WholeMatrixPartitioner>("WholeMatrixPartitioner"),
}};

} // namespace ZERO_NAMESPACE
