#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <filesystem>
#include <string_view>

namespace ZERO_NAMESPACE {
struct Manifest;
} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Gives the JSON text of a manifest in parts, with its checksum at the end.
/// @throws CheckpointError for a text that is not UTF-8
void write_json(Manifest const& manifest, FunctionRef<std::string_view> write);

/// @brief Writes the manifest of a checkpoint part by part, makes it durable and reads it back.
/// @throws CheckpointError also for a manifest that cannot be read back
void write_manifest(std::filesystem::path const& checkpoint, Manifest const& manifest);

} // namespace ZERO_NAMESPACE::detail

#include "../manifest.hpp" // whose definitions need the declarations above

#if !defined(ZERO_COMPILED)
#include "write_manifest.ipp"
#endif
