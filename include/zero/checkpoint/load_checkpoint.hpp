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
    std::string own;
    std::vector<std::uint64_t> numbers; // of manifests, by rank
    auto const numbers_of = [&](std::vector<std::uint64_t> const& values, char const* what) {
        access.guard([&] {
            numbers = gather_on_host(access.communicator(), access.queue(), access.memory(), values,
                                     what);
        });
    };
    std::uint64_t number = 0;
    auto const steps = on_files(
        access, "find a checkpoint",
        [&](OnCaller) {
            own = options.name.empty() ? directory.latest().value_or("") : options.name;
            number = own.empty() ? 0 : manifest_number(directory.path(own));
            return number == 0 ? 0
                               : 1
                                     + read_manifest(directory.path(own), drop_intervals)
                                           .scalars.counts.at("step_count");
        },
        options.file_time_out);
    auto const latest =
        static_cast<std::size_t>(std::max_element(steps.begin(), steps.end()) - steps.begin());
    if (steps[latest] == 0) {
        return options.name.empty() ? "" : directory.complete_path(options.name).string();
    }
    std::string const name = gather_texts(access, own, "names of checkpoints")[latest];
    numbers_of({number}, "numbers of checkpoints");
    number = numbers[latest];
    files.folder = directory.path(name);
    on_files(
        access, "complete a checkpoint",
        [&](OnCaller) {
            auto const incomplete = directory.incomplete(name);
            auto const lacks_name = [&] {
                return manifest_number(files.folder) != number
                       && manifest_number(incomplete) == number;
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
            return std::uint64_t{0};
        },
        options.file_time_out);
    bool is_here = false;
    auto const size_of = [&](std::string const& file) {
        std::error_code error; // then it is not there
        auto const bytes = std::filesystem::file_size(files.folder / file, error);
        return error || !is_here ? std::uint64_t{0} : std::uint64_t{bytes};
    };
    /// Adds files with the bytes that each rank has of them.
    auto const add = [&](std::vector<std::string> const& names, std::vector<std::uint64_t> bytes) {
        numbers_of(bytes, "sizes of files");
        for (std::size_t file = 0; file < names.size(); ++file) {
            std::size_t rank = 0;
            while (rank + 1 < numbers.size() / names.size()
                   && numbers[rank * names.size() + file] == 0) {
                ++rank;
            }
            files.places.push_back(
                {names[file], rank, numbers[rank * names.size() + file], bytes[file] != 0});
        }
    };
    auto const manifest = on_files(
        access, "look for the manifest",
        [&](OnCaller) {
            is_here = manifest_number(files.folder) == number;
            return size_of(Manifest::file);
        },
        options.file_time_out);
    add({Manifest::file}, {manifest[access.rank()]});
    std::vector<ManifestFile> data;
    std::vector<std::uint64_t> bytes;
    on_files(
        access, "look for the files of the checkpoint",
        [&](OnCaller) {
            data = read_manifest(files.open(0), drop_intervals).files;
            for (ManifestFile const& file : data) {
                bytes.push_back(size_of(file.name));
            }
            return std::uint64_t{0};
        },
        options.file_time_out, &files);
    constexpr std::size_t at_once = 64; // W numbers each
    for (std::size_t begin = 0; begin < data.size(); begin += at_once) {
        std::vector<std::string> names;
        std::size_t const end = smaller(begin + at_once, data.size());
        for (std::size_t file = begin; file < end; ++file) {
            names.push_back(data[file].name);
        }
        add(names, {bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                    bytes.begin() + static_cast<std::ptrdiff_t>(end)});
    }
    std::string missing;
    for (std::size_t file = 0; file < data.size(); ++file) {
        missing += files.places[file + 1].bytes == 0 ? "\n  " + named_with_host(data[file]) : "";
    }
    if (!missing.empty()) {
        throw_error<CheckpointError>({"zero: the checkpoint '", files.folder.string(),
                                      "' has files that are on no rank's disk:", missing,
                                      "\nStart a rank on each of these hosts, or copy the files to "
                                      "this folder of any rank (rank ",
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
/// @throws CheckpointError if there is no checkpoint, a file is damaged, or it does not fit; the
/// engine is unchanged. An error while the engine's memory is written breaks the engine: the files
/// changed after they were verified, or `verify_first` is false.
template <class Stage>
LoadReport load_checkpoint(Stage& stage, std::filesystem::path const& directory,
                           LoadOptions const& options = {}) {
    auto const access = detail::access_to(stage);
    access.wait_to_write("load_checkpoint()");
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
