#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/set_by_name.hpp"
#include "tensor_entry.hpp"
#include "tensor_rules.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The part of a checkpoint that is loaded.
enum class LoadScope : std::uint8_t {
    everything, ///< weights, optimizer states, step count, loss scaler and group settings
    weights,    ///< parameters and master weights only, from the master weights if there are any
    parameters  ///< the same, but from the rounded parameters
};

/// @brief Options of `load_checkpoint`. Pass the same on every rank.
struct LoadOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    std::string name{}; ///< name of the checkpoint; default: `CheckpointDirectory::latest`
    LoadScope scope = LoadScope::everything; ///< what is loaded
    /// `LoadScope::everything`: also load the hyper-parameters and learning rate factors of the
    /// groups, each from the group that held its parameters. false: the engine keeps its own.
    bool settings = true;
    bool may_round = false; ///< accept stored values that the engine's types cannot represent
    /// Accept differences, which the report lists. Parameters and arrays that are missing keep
    /// their values; those that the engine lacks are ignored. Another optimizer is accepted, and so
    /// are merged or divided groups with other settings. A loss scaler with other trackers keeps
    /// those of the engine. Shapes must agree.
    bool may_differ = false;
    /// Accept only one of these differences: trainable parameters that were frozen when the
    /// checkpoint was saved, so that it lacks their states.
    bool may_thaw = false;
    /// Accept only one of these differences: merged or divided groups with other settings.
    bool may_regroup = false;
    /// Called on every rank with the extras before anything is changed. Throw from it to refuse
    /// them, for instance if the position in the data is missing; empty: accept all.
    std::function<void(std::map<std::string, std::string> const&)> check_extras{};
    /// Read twice, to verify all data on all ranks before the engine is changed. false: read once
    /// and verify while reading, so that damage breaks the engine.
    bool verify_first = true;
    TensorRules rules{}; ///< `load_parameters`: which tensors a parameter is made of
    /// `load_checkpoint`: ranks look on disks that they do not share. What a rank's disk lacks,
    /// another rank that has it sends.
    bool own_disks = false;
    /// As `SaveOptions::file_time_out`, for reading.
    std::chrono::milliseconds file_time_out = std::chrono::minutes(30);
};

/// @brief The result of `load_checkpoint` or `load_parameters`.
struct LoadReport {
    std::string name;                          ///< name of the checkpoint, or path of the file
    std::map<std::string, std::string> extras; ///< `SaveOptions::extras`
    std::map<std::string, ExtraArray> arrays;  ///< `SaveOptions::arrays`, this rank's rows
    std::string base;                          ///< `SaveOptions::base`
    /// The differences that `LoadOptions::may_differ`, `may_thaw` and `may_regroup` accepted. Three
    /// need no option: states of frozen parameters, which are dropped; groups of frozen parameters
    /// alone, which keep the settings of the engine; and errors of encoded gradients in a form that
    /// the engine does not keep.
    std::vector<std::string> differences;
    /// One line for each group whose settings in the program differed: the option, its value in the
    /// program, and its value in the checkpoint, which now applies. Empty without
    /// `LoadOptions::settings`.
    std::vector<std::string> replaced_settings;
    /// Trainable parameters of which the checkpoint lacks states. They keep those of the engine
    /// (zero in a new one) and their own number of updates, from which the bias correction follows.
    std::vector<std::string> without_states;
    std::uint64_t bytes_needed = 0; ///< size of this rank's arrays in the files
    std::uint64_t bytes_read = 0;   ///< read by this rank, with indices and checksums;
                                    ///< data that is verified first counts twice
};

/// @brief The parameters that a checkpoint holds, with their master weights and states: all of
/// them, or those that a member selects.
struct SavedParameters {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    bool trainable = false;                    ///< those that are trainable
    std::vector<std::string> names{};          ///< those of a name; `*` as in `TensorRule`
};

/// @brief Options of `save_checkpoint`. Pass the same on every rank.
struct SaveOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    std::string name{}; ///< name of the checkpoint, a folder in the directory; default:
                        ///< "step-" and the step count. An existing one is replaced
    std::map<std::string, std::string> extras{}; ///< caller-owned texts in UTF-8, such as the
                                                 ///< position in the data; rank 0's are saved
    /// Caller-owned arrays, by names in UTF-8 that do not begin with "zero.gradient_errors.", as
    /// those of `ErrorFeedback` do. Their names, and types and sizes of rows, must be
    /// equal on every rank.
    std::map<std::string, ExtraArray> arrays{};
    /// Leaves other parameters out: adapters are saved without what they adapt. Of frozen ones the
    /// checkpoint has a hash of the values, which an engine that loads it must hold already. Ranks
    /// compare it. Saving reads all of them.
    SavedParameters only{};
    std::string base{}; ///< with `only`: a name of the values that are left out, for messages
    /// Afterwards keep this number of checkpoints whose names differ from this one's in the number
    /// at the end only, this one included; 0: keep all. Those with larger numbers, left by a
    /// training that went back, are neither counted nor removed.
    std::size_t keep_last = 0;
    /// The directory of each rank may be on another disk: a rank's file stays on its own, and every
    /// disk gets a manifest, which names the host of each file. Load with
    /// `LoadOptions::own_disks`. Several ranks may share a disk.
    bool own_disks = false;
    /// The time that ranks wait for one another's files, whatever the time-out of the communicator
    /// is; must be positive, and rank 0's counts. When it is over, every rank throws
    /// CheckpointError.
    std::chrono::milliseconds file_time_out = std::chrono::minutes(30);
};

/// @brief Options of `save_parameters`. Pass the same on every rank.
struct ExportOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// Type of the tensors: float32 keeps the master weights, bfloat16 and float16 round them. With
    /// float32, frozen parameters of 16 bits keep their type and follow the others.
    DType dtype = DType::float32;
    /// The most bytes of data of a file; a larger tensor has a file of its own. Several files are
    /// called "model-00001-of-00003.safetensors", with the index "model.safetensors.index.json".
    /// 0, or if all fits: one file.
    std::uint64_t max_file_bytes = 0;
    TensorRules rules{}; ///< the names of the tensors. A rule with one tensor and no part counts
                         ///< backwards as well. A parameter that is transposed needs a `shape`
    /// As `SaveOptions::file_time_out`, for each file.
    std::chrono::milliseconds file_time_out = std::chrono::minutes(30);
};

} // namespace ZERO_NAMESPACE
