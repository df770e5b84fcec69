#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The result of `load_checkpoint` or `load_parameters`.
struct LoadReport {
    std::string name;                          ///< name of the checkpoint, or path of the file
    std::map<std::string, std::string> extras; ///< `SaveOptions::extras`
    std::vector<std::string> differences; ///< accepted by `LoadOptions::may_differ`, `may_thaw` and
                                          ///< `may_regroup`; and without them the states of frozen
                                          ///< parameters, which are dropped, and groups of frozen
                                          ///< parameters alone that keep the settings of the engine
    std::vector<std::string> replaced_settings; ///< one line for each group whose settings in the
                                                ///< program differed: the option, its value there
                                                ///< and its value in the checkpoint, which holds
                                                ///< now; empty without `LoadOptions::settings`
    std::vector<std::string> without_states; ///< trainable parameters of which the checkpoint lacks
                                             ///< states: they keep those of the engine (zero in a
                                             ///< new one) and their own number of updates, from
                                             ///< which the bias correction follows
    std::uint64_t bytes_needed = 0;          ///< size of this rank's arrays in the files
    std::uint64_t bytes_read = 0;            ///< read by this rank, with indices and checksums;
                                             ///< data that is verified first counts twice
};

} // namespace ZERO_NAMESPACE
