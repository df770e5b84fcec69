#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
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
/// @param plan `SavePlan`
/// @return keeps that folder from other saves; keep it until the checkpoint is published
/// @throws InvalidArgument on every rank if `SaveOptions::only` fits no parameters, or differs
template <class Access, class Plan>
[[nodiscard]] FolderLock begin_checkpoint(Access const& access,
                                          CheckpointDirectory const& directory, Plan const& plan,
                                          SaveOptions const& options) {
    FolderLock lock; // of rank 0
    require_own_path(access, directory.path(plan.name).parent_path());
    auto const selections = on_files(
        access, "begin the checkpoint",
        [&](OnCaller) {
            if (!plan.problem.empty()) {
                throw_error<InvalidArgument>(
                    {"zero: ", plan.problem, " (rank ", access.rank(), ")."});
            }
            if (access.rank() == 0) {
                plan.manifest.require_valid_extras();
                directory.begin(plan.name);
                lock = FolderLock(directory.incomplete(plan.name));
            }
            return plan.selection;
        },
        options.file_time_out);
    for (std::size_t rank = 0; rank < selections.size(); ++rank) {
        if (selections[rank] != selections[0]) {
            throw_error<InvalidArgument>({"zero: ranks 0 and ", rank,
                                          " would save other parameters or arrays; give the same "
                                          "SaveOptions::only, and arrays of the same names, types "
                                          "and sizes of rows, on every rank (rank ",
                                          access.rank(), ")."});
        }
    }
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
/// @param plan `SavePlan`, @param checksums checksums of the files, by rank
template <class Access, class Plan>
void publish_checkpoint(Access const& access, CheckpointDirectory const& directory, Plan& plan,
                        std::vector<std::uint64_t> const& checksums, SaveOptions const& options) {
    on_files(
        access, "publish the checkpoint",
        [&](OnCaller) {
            if (access.rank() == 0) {
                plan.set_checksums(checksums);
                write_manifest(directory.incomplete(plan.name), plan.manifest);
                directory.publish(plan.name);
                if (options.keep_last != 0) {
                    keep_last(directory, options.keep_last, plan.name);
                }
            }
            return std::uint64_t{0};
        },
        options.file_time_out);
}

} // namespace ZERO_NAMESPACE::detail
