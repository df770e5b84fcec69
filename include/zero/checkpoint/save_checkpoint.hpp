#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../stage/describe.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "checkpoint_directory.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/publish_checkpoint.hpp"
#include "detail/save_plan.hpp"
#include "load_options.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Saves the training state of an engine: parameters, master weights, optimizer states and
/// all scalars of the step. Collective, between two steps; waits.
///
/// Every rank writes the slices that it owns, in place from its memory, into one file of the
/// checkpoint's folder; with `Groups` only those of one replica write. With `ErrorFeedback` every
/// rank writes its errors as well. All ranks must see the same directory. The manifest is written
/// when all have succeeded, and then the folder gets its name. So a checkpoint exists completely or
/// not at all, whenever a process dies, and it does not depend on stage, world size, partitioner or
/// storage. No bit of the training changes.
///
/// Memory: one buffer of at most 4 MiB, 8 bytes for each 512 KiB that this rank writes, and lists
/// of slices.
/// @param directory holds all checkpoints of a training; created if it is missing
/// @return the name of the checkpoint
/// @throws CheckpointError on every rank if a file cannot be written; OutOfOrder inside a step. The
/// engine can continue, and earlier checkpoints stay
template <class Stage>
std::string save_checkpoint(Stage& stage, std::filesystem::path const& directory,
                            SaveOptions const& options = {}) {
    auto const access = detail::access_to(stage);
    access.require_idle("save_checkpoint()");
    access.guard([&] { access.wait_to_read(); });
    detail::SavePlan plan(access, describe(stage), options);
    std::string const& name = plan.name;
    CheckpointDirectory const checkpoints(directory);
    auto const lock = detail::begin_checkpoint(access, checkpoints, plan, options);
    plan.complete(access, options.file_time_out);
    Buffer<std::byte> staging;
    std::vector<std::uint64_t> const checksums = detail::on_files(
        access, "write its file of the checkpoint",
        [&](detail::OnCaller on_caller) {
            return plan.writes() ? detail::write_held(
                       access, plan.job(checkpoints.incomplete(name), options), staging, on_caller)
                                 : std::uint64_t{0};
        },
        options.file_time_out);
    detail::publish_checkpoint(access, checkpoints, plan, checksums, options);
    return name;
}

} // namespace ZERO_NAMESPACE
