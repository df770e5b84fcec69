#pragma once

#include "../core/detail/namespace.hpp"
#include "manifest.hpp"
#include "safetensors_reader.hpp"
#include "tensor_entry.hpp"
#include "tensor_rules.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Reads a checkpoint by parameter, without an engine: values as floats, or the items of an
/// array as they are stored. Keeps at most `most_open` files open. Threads may share a reader; they
/// read one after another. `SafetensorsReader` verifies the bytes.
class CheckpointReader {
public:
    /// The number of files that one reader keeps open at most. It is small, because each rank of a
    /// process has a reader.
    static constexpr std::size_t most_open = 8;

    /// @param checkpoint folder of one checkpoint
    /// @throws CheckpointError unless its manifest is valid
    explicit CheckpointReader(std::filesystem::path const& checkpoint);

    /// @brief Reads a checkpoint whose manifest was read before.
    /// @param checkpoint folder of that checkpoint
    /// @param manifest its intervals may be a part: values of other elements are refused
    /// @param open opens the data file of a number; empty: in the folder
    CheckpointReader(std::filesystem::path checkpoint, Manifest manifest,
                     std::function<detail::File(std::size_t)> open = {});

    /// @brief Reads the safetensors files of any program as if they were a checkpoint with
    /// parameters only: every tensor is one, unless `rules` say otherwise.
    /// @param file one safetensors file; the index of several ("model.safetensors.index.json"),
    /// which are beside it; or a folder with such an index or a file "model.safetensors". Symbolic
    /// links are followed
    /// @throws CheckpointError for a file that is missing or no safetensors file, and for a tensor
    /// that is in another file than the index says, or in two; InvalidArgument for a rule that fits
    /// no tensors. Rules that do not fit these tensors are `problems`
    [[nodiscard]] static CheckpointReader of_file(std::filesystem::path const& file,
                                                  TensorRules const& rules = {});

    /// @brief Returns why rules do not fit the tensors, one text for each parameter that is missing
    /// for that reason. Empty for checkpoints.
    [[nodiscard]] std::span<std::string const> problems() const noexcept { return _problems; }

    /// @brief Returns the parts of tensors that no parameter has, although another part of the
    /// tensor is one. Empty for checkpoints.
    [[nodiscard]] std::span<std::string const> left_over() const noexcept { return _left_over; }

    /// @brief Returns lines of a table that name no tensor, for messages.
    [[nodiscard]] std::span<std::string const> unmatched() const noexcept { return _unmatched; }

    /// @brief Returns the path of the checkpoint, or of what `of_file` was given.
    [[nodiscard]] std::filesystem::path const& path() const noexcept { return _checkpoint; }

    /// @brief Returns a hash of the names, shapes and types of all parameters and of the places of
    /// their elements, by which ranks compare what they read; 0 for a checkpoint, which has a
    /// checksum.
    [[nodiscard]] std::uint64_t places_hash() const;

    /// @brief Returns the content of `manifest.json`.
    [[nodiscard]] Manifest const& manifest() const noexcept { return _manifest; }

    /// @brief Returns the index of a parameter, or nothing. O(log n).
    /// @param hint O(1) if it is this index or the next one
    [[nodiscard]] std::optional<std::size_t> find(std::string_view name,
                                                  std::size_t hint = 0) const;

    /// @brief Returns a parameter of `Manifest::base`, or null. O(log n).
    [[nodiscard]] ManifestParameter const* find_base(std::string_view name) const;

    /// @brief Returns the index of an array of a parameter's type, or nothing.
    [[nodiscard]] std::optional<std::size_t> find_array(std::size_t parameter,
                                                        std::string_view name) const;

    /// @brief Reads weights in full precision: master weights in any form, otherwise the parameter.
    /// @param is_rounded read the rounded parameter instead
    /// @param values elements [begin, begin + values.size())
    void read_weights(std::size_t parameter, std::uint64_t begin, std::span<float> values,
                      bool is_rounded = false);

    /// @brief Reads values of an array: a state by name, "master" or "parameter".
    /// @throws CheckpointError if the parameter has no such array of numbers
    void read_values(std::size_t parameter, std::string_view array, std::uint64_t begin,
                     std::span<float> values);

    /// @brief Reads elements of a parameter by name. @throws CheckpointError if there is none
    void read_parameter(std::string_view name, std::uint64_t begin, std::span<float> values);

    /// @brief Reads rows [begin, end) of an array of the caller, and verifies them.
    [[nodiscard]] ExtraArray read_rows(ManifestExtraArray const& array, std::uint64_t begin,
                                       std::uint64_t end);

    /// @brief Reads stored items of one interval. @param offset offset of the first byte in the
    /// items of the interval
    void read_items(std::size_t parameter, std::size_t array, ManifestInterval const& interval,
                    std::uint64_t offset, std::span<std::byte> into);

    /// @brief Verifies stored items without keeping them.
    void verify_items(std::size_t parameter, std::size_t array, ManifestInterval const& interval,
                      std::uint64_t offset, std::uint64_t bytes);

    /// @brief Returns the number of elements that should be read at once: 2^20 of a parameter that
    /// is stored transposed, and at least 16 rows; otherwise one.
    [[nodiscard]] std::size_t preferred_elements(std::size_t parameter) const;

    /// @brief Returns whether the files are a checkpoint, and not those of another program.
    [[nodiscard]] bool is_checkpoint() const noexcept { return !_is_file; }

    /// @brief Returns the size of one item of an array, in bytes.
    [[nodiscard]] std::uint64_t item_bytes(std::size_t parameter, std::size_t array) const;

    /// @brief Returns the number of bytes read from data files so far.
    [[nodiscard]] std::uint64_t bytes_read() const noexcept;

private:
    [[nodiscard]] ManifestArray const& array_of(std::size_t parameter, std::size_t array) const;
    TensorEntry const& tensor(std::size_t parameter, std::size_t array,
                              ManifestInterval const& interval, SafetensorsReader*& reader);
    SafetensorsReader& opened(std::size_t number);
    template <class Visitor>
    void for_runs(std::size_t parameter, std::uint64_t offset, std::uint64_t bytes,
                  Visitor const& visit);

    /// A tensor of a file that is no checkpoint's.
    struct FileTensor {
        std::size_t file = 0;
        TensorEntry const* entry = nullptr;
    };

    std::filesystem::path _checkpoint;
    Manifest _manifest;
    std::function<detail::File(std::size_t)> _open_file;
    bool _is_file = false; ///< no checkpoint: parameters are `_views` of `_tensors`
    std::vector<FileTensor> _tensors;
    std::vector<detail::TensorView> _views; ///< by parameter
    std::vector<std::string> _problems;
    std::vector<std::string> _left_over;
    std::vector<std::string> _unmatched;
    std::vector<std::size_t> _by_name;                      ///< parameters, sorted by name
    std::vector<std::size_t> _base_by_name;                 ///< those of the base
    std::vector<std::unique_ptr<SafetensorsReader>> _files; ///< null: not read yet
    std::vector<std::size_t> _open; ///< the files that are open, the last one used last
    std::unique_ptr<std::mutex> _reading = std::make_unique<std::mutex>(); ///< guards `_files`
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/checkpoint_reader.ipp"
#endif
