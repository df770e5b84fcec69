#pragma once

#include "../core/detail/namespace.hpp"

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
    std::size_t keep_last = 0; ///< afterwards keep this number of checkpoints whose names differ
                               ///< from this one's in the number at the end only; 0: keep all
};

} // namespace ZERO_NAMESPACE
