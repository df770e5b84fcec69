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
/// its name in one operation of the file system, and then lets the file "latest" name it. A process
/// may die at any point: a folder with the name of its checkpoint is complete, and `begin` removes
/// the others.
///
/// One process at a time may write. All functions throw CheckpointError.
class CheckpointDirectory {
public:
    /// @brief Touches nothing. @param directory may be missing until `begin`
    explicit CheckpointDirectory(std::filesystem::path directory);

    /// @brief Removes the remains of earlier saves, puts back a checkpoint that a process had moved
    /// aside when it died, and creates an empty folder to write in.
    /// @param name at most 200 bytes, without '/', not starting with '.', not "latest". A folder of
    /// that name that is not a checkpoint is an error and is not replaced
    void begin(std::string const& name) const;

    /// @brief Returns the folder in which a checkpoint is written.
    [[nodiscard]] std::filesystem::path incomplete(std::string const& name) const;

    /// @brief Gives a complete checkpoint its name; an older one of that name is replaced.
    void publish(std::string const& name) const;

    /// @brief Removes the oldest checkpoints beyond `count`, but not the latest.
    void keep_last(std::size_t count) const;

    /// @brief Returns the checkpoint that was published last and still exists; empty if there is
    /// none.
    /// @throws CheckpointError if there is none because the folder of the last one has no manifest:
    /// a program would otherwise start from scratch and not notice the incomplete copy
    [[nodiscard]] std::optional<std::string> latest() const;

    /// @brief Returns all checkpoints, the oldest first.
    [[nodiscard]] std::vector<std::string> complete() const;

    /// @brief Returns the folder of a checkpoint.
    [[nodiscard]] std::filesystem::path path(std::string const& name) const;

private:
    [[nodiscard]] bool is_complete(std::string const& name) const;

    std::filesystem::path _directory;
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/checkpoint_directory.ipp"
#endif
