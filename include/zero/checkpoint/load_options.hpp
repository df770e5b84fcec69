#pragma once

#include "../core/detail/namespace.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief The part of a checkpoint that is loaded.
enum class LoadScope : std::uint8_t {
    everything, ///< weights, optimizer states, step count, loss scaler and group settings
    weights,    ///< parameters and master weights only, from the master weights if there are any
    parameters  ///< the same, but from the rounded parameters
};

/// @brief Options of `load_checkpoint`. Pass the same on every rank.
struct LoadOptions {
    std::string name{}; ///< name of the checkpoint; default: `CheckpointDirectory::latest`
    LoadScope scope = LoadScope::everything; ///< what is loaded
    bool settings = true;     ///< LoadScope::everything: also the hyper-parameters and learning
                              ///< rate factors of the groups, each from the group that held its
                              ///< parameters; otherwise the engine keeps its own
    bool may_round = false;   ///< accept stored values that the engine's types cannot represent
    bool may_differ = false;  ///< parameters and arrays that are missing keep their values, those
                              ///< that the engine lacks are ignored, and another optimizer is
                              ///< accepted, as are groups of other settings that were merged or
                              ///< divided, and a loss scaler of other trackers, which keeps the
                              ///< engine's; the report lists all. Shapes must agree
    bool may_thaw = false;    ///< of these only: trainable parameters that were frozen when the
                              ///< checkpoint was saved, so that it lacks their states
    bool may_regroup = false; ///< of these only: groups of other settings that were merged or
                              ///< divided
    /// Called on every rank with the extras before anything is changed. Throw from it what refuses
    /// them, such as a missing position in the data; empty: accept all.
    std::function<void(std::map<std::string, std::string> const&)> check_extras{};
    bool verify_first = true; ///< read twice: verify all data on all ranks before the engine is
                              ///< changed. false: read once and verify while reading, so that
                              ///< damage breaks the engine
    /// As `SaveOptions::file_time_out`, for reading.
    std::chrono::milliseconds file_time_out = std::chrono::minutes(30);
};

} // namespace ZERO_NAMESPACE
