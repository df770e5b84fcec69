#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <filesystem>

namespace ZERO_NAMESPACE {
struct Manifest;
struct ManifestParameter;
} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Removes those intervals of a parameter that a reader does not need. Called for each
/// parameter once its intervals have been checked.
using KeepIntervals = FunctionRef<ManifestParameter&>;

/// @brief Keeps none, for readers of the scalars.
inline constexpr auto drop_intervals = [](auto& parameter) { parameter.intervals.clear(); };

/// @brief Reads and checks `manifest.json` of a checkpoint. Memory: 64 KiB of its text, the
/// intervals of one parameter, and what is kept.
/// @param keep empty: all intervals
/// @throws CheckpointError as `Manifest::from_json`
[[nodiscard]] Manifest read_manifest(std::filesystem::path const& checkpoint, KeepIntervals keep);

} // namespace ZERO_NAMESPACE::detail

#include "../manifest.hpp" // whose definitions need the declarations above

#if !defined(ZERO_COMPILED)
#include "read_manifest.ipp"
#endif
