#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../checkpoint_reader.hpp"
#include "../manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The group of a checkpoint from which each group of an engine gets its settings: the one
/// that held the parameters. Numbers of groups are an order of listing and may change.
struct GroupSources {
    /// @param own settings of the engine's groups, as a checkpoint of it would name them
    GroupSources(FlatLayout const& layout, CheckpointReader const& checkpoint,
                 ManifestScalars const& own, std::size_t groups);

    /// @throws CheckpointError that lists the differences
    [[noreturn]] void refuse(std::string const& source) const;

    std::vector<std::optional<std::uint64_t>> stored; ///< by group; empty: none, or several
    std::vector<std::string> differences; ///< groups that were merged or divided and differ
    std::vector<std::string> kept;     ///< groups of frozen parameters alone of which that is true:
                                       ///< they keep the settings of the engine
    std::vector<std::string> replaced; ///< groups whose settings are not those of the engine
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "group_sources.ipp"
#endif
