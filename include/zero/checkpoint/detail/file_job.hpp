#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../tensor_entry.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The memory of one tensor of a file.
struct TensorSource {
    void const* data = nullptr;
    std::size_t bytes = 0;
};

/// @brief One rank's data file: what is written, and from where.
struct FileJob {
    std::filesystem::path file;
    std::vector<TensorEntry> tensors;
    std::vector<TensorSource> sources; ///< of each tensor

    /// @brief Writes the file. Memory of the host is written in place; otherwise through one
    /// buffer of `staging_bytes`.
    /// @param copy copies `(to, from, bytes)` to the host and waits; empty if the host can read
    /// @return the checksum of the file's index
    /// @throws CheckpointError
    std::uint64_t write(FunctionRef<void*, void const*, std::size_t> copy) const;

    static constexpr std::size_t staging_bytes = std::size_t{1} << 22U;
};

/// @brief Writes the manifest of a checkpoint and makes it durable. @throws CheckpointError also
/// for a manifest that could not be read back
void write_manifest(std::filesystem::path const& checkpoint, std::string const& json);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "file_job.ipp"
#endif
