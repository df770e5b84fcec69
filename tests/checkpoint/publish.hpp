#pragma once

// Checkpoints without content, for tests of their directory.

#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_directory.hpp>

#include <chrono>
#include <filesystem>
#include <string>

namespace zero::test {

/// Publishes a checkpoint that holds only a manifest. Sets its time, because file times are coarse.
inline void publish(CheckpointDirectory const& directory, std::string const& name, int second) {
    directory.begin(name);
    set_content(directory.incomplete(name) / "manifest.json", name + std::to_string(second));
    directory.publish(name);
    std::filesystem::last_write_time(directory.path(name) / "manifest.json",
                                     std::filesystem::file_time_type::clock::now()
                                         + std::chrono::seconds(second - 1000));
}

} // namespace zero::test
