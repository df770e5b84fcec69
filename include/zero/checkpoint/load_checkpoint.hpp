#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/hash.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "checkpoint_directory.hpp"
#include "checkpoint_error.hpp"
#include "checkpoint_reader.hpp"
#include "detail/file.hpp"
#include "detail/load_state.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/remote_files.hpp"
#include "load_options.hpp"
#include "manifest.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns a number of the manifest in a folder, from its end, which is its checksum; 0 if
/// there is none.
[[gnu::cold]] inline std::uint64_t manifest_number(std::filesystem::path const& folder) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(folder / Manifest::file, error)) {
        return 0;
    }
    File const file = File::open(folder / Manifest::file);
    std::string end(static_cast<std::size_t>(smaller<std::uint64_t>(file.size(), 64)), '\0');
    file.read_at(file.size() - end.size(),
                 std::as_writable_bytes(std::span<char>(end.data(), end.size())));
    return Hash().add(std::string_view(end)).value();
}

/// @brief Finds a checkpoint on disks that ranks do not share: the latest of all disks. Where a
/// save has died before a disk gave it its name, that is done here. Collective; waits.
/// @param files gets the manifest and the data files
/// @return its name; empty if no disk has one
/// @throws CheckpointError on every rank that lists files which no disk has
template <class Access>
[[gnu::cold]] std::string find_on_disks(Access const& access, CheckpointDirectory const& directory,
                                        LoadOptions const& options, RemoteFiles& files) {
    auto const on_all = [&](char const* what, auto const& act) {
        return on_files(
            access, what, [&](OnCaller) { return std::uint64_t{act()}; }, options.file_time_out,
            &files);
    };
    std::string own;
    std::uint64_t number = 0; // of the manifest of this rank, then of all
    auto const steps = on_all("find a checkpoint", [&] {
        own = options.name.empty() ? directory.latest().value_or("") : options.name;
        number = own.empty() ? 0 : manifest_number(directory.path(own));
        return number == 0 ? 0
                           : 1
                                 + read_manifest(directory.path(own), drop_intervals)
                                       .scalars.counts.at("step_count");
    });
    auto const latest =
        static_cast<std::size_t>(std::max_element(steps.begin(), steps.end()) - steps.begin());
    if (steps[latest] == 0) {
        return options.name.empty() ? "" : directory.complete_path(options.name).string();
    }
    std::string name = gather_texts(access, own, "names of checkpoints")[latest];
    number = on_all("compare its manifest", [&] { return number; })[latest];
    files.folder = directory.path(name);
    on_all("complete a checkpoint", [&] {
        auto const incomplete = directory.incomplete(name);
        auto const lacks_name = [&] {
            return manifest_number(files.folder) != number && manifest_number(incomplete) == number;
        };
        FolderLock lock;
        bool publishes = false;
        try {
            if (lacks_name()) {
                lock = FolderLock(incomplete);
                publishes = lacks_name();
            }
        } catch (CheckpointError const&) { // another rank of this disk does it
            publishes = false;
        }
        if (publishes) {
            directory.publish(name);
        }
        return 0U;
    });
    bool is_here = false;
    auto const manifest = on_all("look for the manifest", [&] {
        is_here = manifest_number(files.folder) == number;
        return is_here ? size_of(files.folder / Manifest::file) : 0;
    });
    files.add(access, {Manifest::file}, {manifest[access.rank()]});
    std::vector<ManifestFile> data;
    std::vector<std::uint64_t> bytes;
    on_all("look for the files of the checkpoint", [&] {
        data = read_manifest(files.open(0), drop_intervals).files;
        for (ManifestFile const& file : data) {
            bytes.push_back(is_here ? size_of(files.folder / file.name) : 0);
        }
        return 0U;
    });
    constexpr std::size_t at_once = 64; // W numbers each
    for (std::size_t begin = 0; begin < data.size(); begin += at_once) {
        std::size_t const count = smaller(at_once, data.size() - begin);
        std::vector<std::string> names;
        for (std::size_t file = begin; file < begin + count; ++file) {
            names.push_back(data[file].name);
        }
        auto const first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
        files.add(access, names, {first, first + static_cast<std::ptrdiff_t>(count)});
    }
    std::string missing;
    for (std::size_t file = 0; file < data.size(); ++file) {
        missing += files.places[file + 1].bytes == 0 ? "\n  " + named_with_host(data[file]) : "";
    }
    if (!missing.empty()) {
        throw_error<CheckpointError>(
            {"zero: the checkpoint '", files.folder.string(),
             "' has files that are on no rank's disk:", missing,
             "\nStart a rank where they are, copy them beside the manifest "
             "on any rank's disk, or load another checkpoint "
             "(LoadOptions::name) (rank ",
             access.rank(), ")."});
    }
    return name;
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Loads a checkpoint into an engine of any stage, world size, partitioner and storage.
/// Collective, between two steps, with no handle held; waits.
///
/// Every rank reads only the intervals that it holds, and of the manifest it keeps only these.
/// First it checks the manifest against the engine and verifies the checksums of its data. Only
/// when all ranks have succeeded does it read again and write the engine's memory. If world size,
/// types and reduction schedule are the same, training continues bit for bit as if it had not
/// stopped. Master weights of another form are loaded by their value.
/// @param directory as given to `save_checkpoint`
/// @throws CheckpointError if there is no checkpoint, a file is damaged, or it does not fit;
/// InvalidArgument if ranks differ in an option. The engine is unchanged. An error while the
/// engine's memory is written breaks the engine: the files changed after they were verified, or
/// `verify_first` is false.
template <class Stage>
LoadReport load_checkpoint(Stage& stage, std::filesystem::path const& directory,
                           LoadOptions const& options = {}) {
    auto const access = detail::access_to(stage);
    access.wait_to_write("load_checkpoint()");
    detail::require_same_load(access, "load_checkpoint()", options);
    CheckpointDirectory const checkpoints(directory);
    std::string found = options.name;
    detail::on_every_rank(access, "find a checkpoint", [&] {
        if (!options.rules.empty()) {
            detail::throw_error<InvalidArgument>(
                {"zero: load_checkpoint() takes no LoadOptions::rules, because a checkpoint has "
                 "the "
                 "names of the parameters; load_parameters() does (rank ",
                 access.rank(), ")."});
        }
        if (options.own_disks || access.rank() != 0) {
            return std::uint64_t{0};
        }
        if (found.empty()) {
            found = checkpoints.latest().value_or("");
        } else {
            (void)checkpoints.complete_path(found);
        }
        return std::uint64_t{0};
    });
    LoadReport report;
    detail::RemoteFiles files; // empty: all ranks see the directory
    report.name = options.own_disks ? detail::find_on_disks(access, checkpoints, options, files)
                                    : detail::broadcast_text(access, found, "name of a checkpoint");
    if (report.name.empty()) {
        std::error_code error;
        bool const is_one = std::filesystem::is_regular_file(directory / Manifest::file, error);
        detail::throw_error<CheckpointError>(
            {"zero: '", directory.string(),
             is_one ? "' is itself a checkpoint; give the directory that contains it, and its name "
                      "in LoadOptions::name (rank "
                    : "' contains no complete checkpoint; give the directory that "
                      "save_checkpoint() was given (rank ",
             access.rank(), ")."});
    }
    auto const path = checkpoints.path(report.name);
    detail::load_state(
        access, path.string(),
        [&](detail::KeepIntervals keep) {
            return options.own_disks
                       ? CheckpointReader(path, detail::read_manifest(files.open(0), keep),
                                          [&](std::size_t file) { return files.open(file + 1); })
                       : CheckpointReader(path, detail::read_manifest(path, keep));
        },
        options, report, &files);
    return report;
}

} // namespace ZERO_NAMESPACE
