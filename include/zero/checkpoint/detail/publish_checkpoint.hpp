#pragma once

#include "../../core/detail/namespace.hpp"
#include "../checkpoint_directory.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "file.hpp"
#include "on_every_rank.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Creates the folder in which a checkpoint is written. Collective.
/// @return keeps that folder from other saves; keep it until the checkpoint is published
template <class Access>
[[nodiscard]] FolderLock
begin_checkpoint(Access const& access, CheckpointDirectory const& directory,
                 std::string const& name, Manifest const& manifest, SaveOptions const& options) {
    FolderLock lock; // of rank 0
    require_own_path(access, directory.path(name).parent_path());
    on_files(
        access, "begin the checkpoint",
        [&](OnCaller) {
            if (access.rank() == 0) {
                manifest.require_valid_extras();
                directory.begin(name);
                lock = FolderLock(directory.incomplete(name));
            }
            return std::uint64_t{0};
        },
        options.file_time_out);
    return lock;
}

/// @brief Removes older checkpoints. A failure is only reported, because the new one is published.
inline void keep_last(CheckpointDirectory const& directory, std::size_t count,
                      std::string const& name) noexcept {
    try {
        directory.keep_last_up_to(count, name);
    } catch (std::exception const& error) {
        std::fprintf(stderr,
                     "zero: warning: the checkpoint '%s' is published, but older ones could not be "
                     "removed: %s\n",
                     name.c_str(), error.what());
    }
}

/// @brief Writes the manifest and gives the checkpoint its name. Collective; call it when all ranks
/// have written their files. `CheckpointDirectory` renames, makes durable and removes.
/// @param checksums checksums of the files, by rank
template <class Access>
void publish_checkpoint(Access const& access, CheckpointDirectory const& directory,
                        std::string const& name, Manifest& manifest,
                        std::vector<std::uint64_t> const& checksums, SaveOptions const& options) {
    on_files(
        access, "publish the checkpoint",
        [&](OnCaller) {
            if (access.rank() == 0) {
                std::size_t file = 0; // those that save have the order of their files
                for (std::size_t rank = 0; rank < checksums.size(); ++rank) {
                    if (access.saves(rank)) {
                        manifest.files[file++].checksum = checksums[rank];
                    }
                }
                write_manifest(directory.incomplete(name), manifest);
                directory.publish(name);
                if (options.keep_last != 0) {
                    keep_last(directory, options.keep_last, name);
                }
            }
            return std::uint64_t{0};
        },
        options.file_time_out);
}

} // namespace ZERO_NAMESPACE::detail
