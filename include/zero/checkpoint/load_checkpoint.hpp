#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "checkpoint_directory.hpp"
#include "checkpoint_error.hpp"
#include "checkpoint_reader.hpp"
#include "detail/load_state.hpp"
#include "detail/on_every_rank.hpp"
#include "load_options.hpp"
#include "manifest.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

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
        if (access.rank() == 0 && found.empty()) {
            found = checkpoints.latest().value_or("");
        } else if (access.rank() == 0) {
            (void)checkpoints.complete_path(found);
        }
        return std::uint64_t{0};
    });
    LoadReport report;
    report.name = detail::broadcast_text(access, found, "name of a checkpoint");
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
            return CheckpointReader(path, detail::read_manifest(path, keep));
        },
        options, report);
    return report;
}

} // namespace ZERO_NAMESPACE
