#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief An array that parameters of one type have: the parameters themselves, master weights, a
/// state of the optimizer.
struct ManifestArray {
    std::string name;                ///< as `TrainingState::for_each_held_array` names it
    std::string dtype;               ///< type of an item, as safetensors names it: "F32", "BF16"
    std::uint64_t item_elements = 1; ///< elements of the parameter per item: 64 per scale, 8 per
                                     ///< byte of bits
    bool has_frozen = false;         ///< frozen parameters have it as well
};

/// @brief A range of elements of one parameter, and the file that holds all its arrays there.
struct ManifestInterval {
    std::uint64_t file = 0;  ///< index into `Manifest::files`
    std::uint64_t begin = 0; ///< first element
    std::uint64_t end = 0;   ///< one past the last element
};

/// @brief One parameter of a checkpoint.
struct ManifestParameter {
    std::string name;                        ///< as registered
    std::vector<std::uint64_t> shape;        ///< as registered, or the number of elements
    std::size_t type = 0;                    ///< index into `Manifest::types`
    std::uint64_t group = 0;                 ///< parameter group
    bool trainable = true;                   ///< false: it has the arrays with `has_frozen` only
    std::vector<ManifestInterval> intervals; ///< ascending, without gaps
    std::uint64_t hash = 0; ///< of its values; of a parameter of `Manifest::base` alone, which has
                            ///< no intervals in a file

    /// @brief Returns the product of the shape.
    [[nodiscard]] std::uint64_t elements() const noexcept;
};

/// @brief One data file.
struct ManifestFile {
    std::string name; ///< without folder
    std::uint64_t checksum =
        0;                  ///< checksum of its index, as `SafetensorsWriter::finish` returns it
    std::string host{};     ///< the host that saved it on a disk of its own; otherwise empty
    std::uint64_t rank = 0; ///< the rank that did
};

/// @brief An array of the caller, and the files that hold it.
struct ManifestExtraArray {
    std::string name;                        ///< as the caller named it
    std::string dtype;                       ///< type of an item, as safetensors names it
    std::vector<std::uint64_t> shape;        ///< of the whole array
    bool is_by_rows = false;                 ///< each rank has given rows
    std::vector<ManifestInterval> intervals; ///< of rows, by rank; ascending, some may be empty

    /// @brief Returns the number of rows.
    [[nodiscard]] std::uint64_t rows() const noexcept { return shape.empty() ? 1 : shape[0]; }
};

/// @brief Numbers and texts by name. Floats and doubles keep every bit.
struct ManifestScalars {
    std::map<std::string, double> numbers;       ///< finite
    std::map<std::string, std::uint64_t> counts; ///< step count, trackers, flags
    std::map<std::string, std::string> texts;    ///< bytes of caller-defined states, in hexadecimal
};

/// @brief The content of `manifest.json`: which file holds which interval of each array, and the
/// scalars of the training state. It contains no world size, stage or padding, and ranks only to
/// say who saved a file, so that a checkpoint can be read into any layout.
struct Manifest {
    static constexpr std::uint64_t newest_version = 1;   ///< the version that is written
    static constexpr char const* file = "manifest.json"; ///< name of the file

    std::string composition;                       ///< as `describe` prints it; for people
    std::string optimizer;                         ///< name of the optimizer's type; for people
    std::vector<std::vector<ManifestArray>> types; ///< the arrays of each parameter type
    std::vector<ManifestParameter> parameters;     ///< in order of registration
    std::vector<ManifestExtraArray> arrays;        ///< of the caller, then of `ErrorFeedback`
    std::vector<ManifestParameter> base;           ///< frozen ones that no file holds
    std::string base_name;                         ///< `SaveOptions::base`
    std::vector<ManifestFile> files;               ///< all data files
    ManifestScalars scalars;                       ///< scalars of the step, scaler and groups
    std::map<std::string, std::string> extras;     ///< caller-owned texts, in UTF-8

    /// @brief Checks texts that the caller gives, before anything is written.
    /// @throws CheckpointError that names an extra that is not UTF-8
    void require_valid_extras() const;

    /// @brief Returns the JSON text, with a checksum of itself. O(size).
    /// @throws CheckpointError for a text that is not UTF-8
    [[nodiscard]] std::string to_json() const;

    /// @brief Reads and checks a JSON text.
    /// @param source name of the file, for messages
    /// @throws CheckpointError naming the file and the array: not JSON, a wrong checksum, a newer
    /// version, intervals that overlap or leave gaps, file names with folders
    [[nodiscard]] static Manifest from_json(std::string_view json, std::string const& source);

    /// @brief Reads `manifest.json` of a checkpoint. @throws CheckpointError
    [[nodiscard]] static Manifest read(std::filesystem::path const& checkpoint);
};

/// @brief Returns the name of a tensor in a data file: "exp_avg/layer.0.weight" for a whole
/// parameter, "exp_avg/layer.0.weight[128:256]" for an interval.
[[nodiscard]] std::string tensor_name(ManifestArray const& array,
                                      ManifestParameter const& parameter,
                                      ManifestInterval const& interval);

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

class File;

/// @brief Removes those intervals of a parameter that a reader does not need. Called for each
/// parameter once its intervals have been checked.
using KeepIntervals = FunctionRef<ManifestParameter&>;

/// @brief Keeps none, for readers of the scalars.
inline constexpr auto drop_intervals = [](ManifestParameter& parameter) {
    parameter.intervals.clear();
};

/// @brief Reads and checks `manifest.json` of a checkpoint. Memory: 64 KiB of its text, the
/// intervals of one parameter, and what is kept.
/// @param keep empty: all intervals
/// @throws CheckpointError as `Manifest::from_json`
[[nodiscard]] Manifest read_manifest(std::filesystem::path const& checkpoint, KeepIntervals keep);

/// @brief The same for a file that is open.
[[nodiscard]] Manifest read_manifest(File const& file, KeepIntervals keep);

/// @brief Returns the name of a data file and who saved it, for messages.
[[nodiscard]] std::string named_with_host(ManifestFile const& file);

/// @brief Gives the JSON text of a manifest in parts, with its checksum at the end.
/// @throws CheckpointError for a text that is not UTF-8
void write_json(Manifest const& manifest, FunctionRef<std::string_view> write);

/// @brief Writes the manifest of a checkpoint part by part, makes it durable and reads it back.
/// @throws CheckpointError also for a manifest that cannot be read back
void write_manifest(std::filesystem::path const& checkpoint, Manifest const& manifest);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "detail/manifest.ipp"
#include "detail/read_manifest.ipp"
#endif
