#pragma once

#include "../core/detail/namespace.hpp"

#include <array>

namespace ZERO_NAMESPACE {

/// @brief A row of `partitioner_table`: the stages and features that a partitioner supports.
struct PartitionerRow {
    char const* name;           ///< name of the type
    bool is_even;               ///< cuts every bucket evenly, for native collectives
    bool keeps_parameters;      ///< cuts no parameter, so it serves optimizers that need whole
                                ///< parameters in every stage
    bool chooses_bucketer;      ///< requires its own bucketer and accepts no other
    bool serves_adopted_block;  ///< works with Storage::adopted
    std::array<bool, 4> stages; ///< the stages that accept it, with the default bucketer
};

} // namespace ZERO_NAMESPACE
