#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A directory of checkpoints, each a folder that appears complete or not at all.
///
/// A checkpoint is written in the folder ".incomplete-NAME". `publish` makes it durable, gives it
/// its name in one operation of the file system, and then lets the file "latest" name it, unless
/// that names one with a larger step count. A process may die at any point: a folder with the name
/// of its checkpoint is complete, and `begin` removes the others. A folder that cannot be removed
/// is reported on the standard error, and the save continues.
///
/// Several saves may run at once if their names differ; on a network file system, in one process.
/// All functions throw CheckpointError.
class CheckpointDirectory {
public:
    /// @brief Touches nothing. @param directory may be missing until `begin`
    explicit CheckpointDirectory(std::filesystem::path directory);

    /// @brief Removes the remains of earlier saves, puts back a checkpoint that a process had moved
    /// aside when it died, and creates an empty folder to write in. Keeps the folder of a save that
    /// still runs: `save_checkpoint` and `CheckpointSaver` lock theirs.
    /// @param name at most 200 bytes, without '/' and line breaks, not starting with '.', not
    /// "latest". A folder of that name that is not a checkpoint is an error and is not replaced
    void begin(std::string const& name) const;

    /// @brief Returns the folder in which a checkpoint is written.
    [[nodiscard]] std::filesystem::path incomplete(std::string const& name) const;

    /// @brief Gives a complete checkpoint its name; an older one of that name is replaced.
    void publish(std::string const& name) const;

    /// @brief Removes checkpoints with the smallest numbers beyond `count`, but not the latest.
    /// Counts the names that are equal to `name` up to the number at their end: for "step-00000100"
    /// it neither counts nor removes "best" and "epoch-2".
    void keep_last(std::size_t count, std::string const& name = "step-0") const {
        remove_beyond(count, name, true);
    }

    /// @brief As `keep_last`, restricted to the checkpoints whose number is not larger than that of
    /// `name`, which stays as well. Larger ones, left by a training that went back, are neither
    /// counted nor removed. Saving with `SaveOptions::keep_last` calls it.
    void keep_last_up_to(std::size_t count, std::string const& name) const {
        remove_beyond(count, name, false);
    }

    /// @brief Returns the checkpoint that the file "latest" names: the one with the largest step
    /// count, or of several with that count the one that was published last. Without that file, the
    /// last of `complete()`; empty if there is none.
    /// @throws CheckpointError that lists the others, if the file names no complete checkpoint: a
    /// program would otherwise start from scratch, or from another one, without noticing it
    [[nodiscard]] std::optional<std::string> latest() const;

    /// @brief Returns all checkpoints in ascending order of the number at the end of their name,
    /// which survives a copy as times do not. Names without a number come first, by time.
    [[nodiscard]] std::vector<std::string> complete() const;

    /// @brief Returns the folder of a checkpoint.
    [[nodiscard]] std::filesystem::path path(std::string const& name) const;

    /// @brief Returns the folder of a checkpoint that is complete.
    /// @throws CheckpointError that lists the complete ones, if this is none
    [[nodiscard]] std::filesystem::path complete_path(std::string const& name) const;

private:
    /// Returns whether no latest checkpoint has a larger step count than this incomplete one.
    [[nodiscard]] bool is_newest(std::string const& name) const;
    [[nodiscard]] bool is_complete(std::string const& name) const;
    /// @param counts_later whether names with larger numbers than `name` count, and `name` may go
    void remove_beyond(std::size_t count, std::string const& name, bool counts_later) const;

    std::filesystem::path _directory;
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/checkpoint_directory.ipp"
#endif
