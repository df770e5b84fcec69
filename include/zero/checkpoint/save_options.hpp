#pragma once

#include "../core/detail/namespace.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief Options of `save_checkpoint`. Pass the same on every rank.
struct SaveOptions {
    std::string name{}; ///< name of the checkpoint, a folder in the directory; default:
                        ///< "step-" and the step count. An existing one is replaced
    std::map<std::string, std::string> extras{}; ///< caller-owned texts in UTF-8, such as the
                                                 ///< position in the data; rank 0's are saved
    /// Afterwards keep this number of checkpoints whose names differ from this one's in the number
    /// at the end only, this one included; 0: keep all. Those with larger numbers, left by a
    /// training that went back, are neither counted nor removed.
    std::size_t keep_last = 0;
    /// The time that ranks wait for one another's files, whatever the time-out of the communicator
    /// is; must be positive, and rank 0's counts. When it is over, every rank throws
    /// CheckpointError. On a device, whose copies belong to the calling thread, ranks wait in
    /// collectives: there the time-out of the communicator limits the wait instead.
    std::chrono::milliseconds file_time_out = std::chrono::minutes(30);
};

} // namespace ZERO_NAMESPACE
