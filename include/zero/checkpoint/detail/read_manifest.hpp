#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../manifest.hpp"

#include <filesystem>

namespace ZERO_NAMESPACE::detail {

/// @brief Removes those intervals of a parameter that a reader does not need. Called for each
/// parameter once its intervals have been checked.
using KeepIntervals = FunctionRef<ManifestParameter&>;

/// @brief Keeps none, for readers of the scalars.
inline constexpr auto drop_intervals = [](ManifestParameter& parameter) {
    parameter.intervals.clear();
};

/// @brief Reads and checks `manifest.json` of a checkpoint. Memory: 64 KiB of its text, the
/// intervals of one parameter, and what is kept.
/// @param keep empty: all intervals
/// @throws CheckpointError as `Manifest::from_json`
[[nodiscard]] Manifest read_manifest(std::filesystem::path const& checkpoint, KeepIntervals keep);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "read_manifest.ipp"
#endif
