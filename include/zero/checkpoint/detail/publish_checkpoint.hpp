#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../checkpoint_directory.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "file.hpp"
#include "on_every_rank.hpp"
#include "remote_files.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Finds out which ranks share a disk, by an empty file of each rank in the directory.
/// `CheckpointDirectory::begin` removes these. Collective; waits.
template <class Access, class Plan>
void find_disks(Access const& access, CheckpointDirectory const& directory, Plan& plan,
                std::chrono::milliseconds limit) {
    plan.hosts = gather_texts(access, host_name(), "names of hosts");
    // an earlier save may have left its files
    auto const now = std::chrono::system_clock::now().time_since_epoch().count();
    std::string const save = broadcast_text(access, std::to_string(now), "number of a save");
    auto const file_of = [&](std::size_t rank) {
        return directory.incomplete(text({"rank-", rank, "-of-", save}));
    };
    on_files(
        access, "reach its disk",
        [&](OnCaller) {
            auto const file = file_of(access.rank());
            std::error_code ignored; // then the file cannot be created
            if (std::filesystem::create_directories(file.parent_path(), ignored)) {
                sync_folder(
                    std::filesystem::absolute(file.parent_path() / "..").lexically_normal());
            }
            (void)File::create(file);
            return std::uint64_t{0};
        },
        limit);
    on_files(
        access, "look at its disk",
        [&](OnCaller) {
            std::size_t first = 0;
            std::error_code ignored;
            while (first < access.rank() && !std::filesystem::exists(file_of(first), ignored)) {
                ++first;
            }
            plan.is_first_on_disk = first == access.rank();
            return std::uint64_t{0};
        },
        limit);
}

/// @brief Creates the folder in which a checkpoint is written, on each disk. Collective.
/// `CheckpointDirectory::begin` removes what a killed save left.
/// @param plan `SavePlan`; learns who shares its disk
/// @return keeps that folder from other saves; keep it until the checkpoint is published
/// @throws InvalidArgument on every rank if `SaveOptions::only` fits no parameters, or differs
template <class Access, class Plan>
[[nodiscard]] FolderLock begin_checkpoint(Access const& access,
                                          CheckpointDirectory const& directory, Plan& plan,
                                          SaveOptions const& options) {
    FolderLock lock; // of one rank of a disk
    require_own_path(access, directory.path(plan.name).parent_path());
    require_same_options(access, "save_checkpoint()",
                         {ComparedOption::of_value("own_disks", options.own_disks ? 1 : 0),
                          {"name", Hash().add(std::string_view(plan.name)).value()},
                          {"only, or names, types and sizes of rows of arrays", plan.selection}});
    if (options.own_disks) {
        find_disks(access, directory, plan, options.file_time_out);
    }
    on_files(
        access, "begin the checkpoint",
        [&](OnCaller) {
            if (!plan.problem.empty()) {
                throw_error<InvalidArgument>(
                    {"zero: ", plan.problem, " (rank ", access.rank(), ")."});
            }
            if (access.rank() == 0) {
                plan.manifest.require_valid_extras();
            }
            if (plan.is_first_on_disk) {
                directory.begin(plan.name);
                lock = FolderLock(directory.incomplete(plan.name));
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

/// @brief Copies the manifest of another disk to a folder.
[[gnu::cold]] inline void copy_manifest(File const& from, std::filesystem::path const& folder) {
    constexpr std::uint64_t most = std::uint64_t{1} << 16U;
    File to = File::create(folder / Manifest::file);
    std::vector<std::byte> part;
    for (std::uint64_t at = 0; at < from.size(); at += part.size()) {
        part.resize(static_cast<std::size_t>(smaller(most, from.size() - at)));
        from.read_at(at, part);
        to.write(part);
    }
    to.sync_and_close();
    (void)read_manifest(folder, drop_intervals);
}

/// @brief Writes the manifest and gives the checkpoint its name. Collective; call it when all ranks
/// have written their files. `CheckpointDirectory` renames, makes durable and removes.
///
/// With several disks every disk holds all of its files and the manifest before one gives them
/// their name, so that a load can complete a checkpoint that has its name on some. The older ones
/// are removed when it has it on all.
/// @param plan `SavePlan`, @param checksums checksums of the files, by rank
template <class Access, class Plan>
void publish_checkpoint(Access const& access, CheckpointDirectory const& directory, Plan& plan,
                        std::vector<std::uint64_t> const& checksums, SaveOptions const& options) {
    auto const folder = directory.incomplete(plan.name);
    auto const on_each_disk = [&](char const* what, auto const& act, RemoteFiles* files = nullptr) {
        on_files(
            access, what,
            [&](OnCaller) {
                if (plan.is_first_on_disk) {
                    act();
                }
                return std::uint64_t{0};
            },
            options.file_time_out, files);
    };
    auto const write = [&] {
        if (access.rank() == 0) {
            plan.set_checksums(checksums);
            write_manifest(folder, plan.manifest);
        }
    };
    auto const remove_older = [&] {
        if (options.keep_last != 0) {
            keep_last(directory, options.keep_last, plan.name);
        }
    };
    if (!options.own_disks) {
        on_each_disk("publish the checkpoint", [&] {
            write();
            directory.publish(plan.name);
            remove_older();
        });
        return;
    }
    on_each_disk("write the manifest", write);
    RemoteFiles files;
    files.folder = folder;
    files.add(access, {Manifest::file},
              {access.rank() == 0 ? size_of(folder / Manifest::file) : 0});
    on_each_disk(
        "copy the manifest to its disk",
        [&] {
            if (access.rank() != 0) {
                copy_manifest(files.open(0), folder);
            }
        },
        &files);
    on_each_disk("publish the checkpoint", [&] { directory.publish(plan.name); });
    on_each_disk("remove older checkpoints", remove_older);
}

} // namespace ZERO_NAMESPACE::detail
