#pragma once

#include "../core/detail/namespace.hpp"
#include "../tier/detail/checksum.hpp"
#include "detail/file.hpp"
#include "tensor_entry.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Writes one safetensors file, from its first to its last byte, with checksums.
///
/// The data is covered by XXH3-64 checksums of blocks of 2 KiB ("xxh3_blocks"), and these by
/// checksums of their blocks ("xxh3_groups"): the last two tensors of the file, or the file
/// "NAME.checksums" beside it. Memory: 1.1 MiB, and 8 bytes for each 512 KiB of data.
class SafetensorsWriter {
public:
    /// @brief Creates the file, which must not exist, and writes its header.
    /// @param tensors names, types and shapes in the order of the data; offsets are ignored
    /// @param metadata texts for programs that read the file
    /// @param checksums `ChecksumPlace::beside` for a file that other programs read: it holds the
    /// tensors alone and its format is "pt". It gets its name when it is complete, so a failure
    /// leaves nothing behind
    /// @throws CheckpointError
    SafetensorsWriter(std::filesystem::path const& file, std::vector<TensorEntry> tensors,
                      std::map<std::string, std::string> const& metadata = {},
                      ChecksumPlace checksums = ChecksumPlace::inside);

    /// @brief Appends data: all tensors one after another, cut anywhere. Parts of at least 1 MiB
    /// are written without a copy.
    /// @throws CheckpointError also for more data than declared
    void append(std::span<std::byte const> bytes);

    /// @brief Writes the checksums, makes the file durable and closes it. Without this call the
    /// file stays incomplete, or is removed if its checksums are beside it.
    /// @return the checksum of the index, that is of the header and "xxh3_groups", for a manifest
    /// @throws CheckpointError also for less data than declared
    std::uint64_t finish();

private:
    void add_to_checksums(std::span<std::byte const> bytes);
    void add_checksum(std::uint64_t checksum);
    void write_collected();
    void write_checksums();

    [[nodiscard]] detail::File& checksum_file() noexcept { return _beside ? *_beside : _file; }

    detail::File _file;
    std::optional<detail::File> _beside; ///< the checksums of `ChecksumPlace::beside`
    std::string _header;
    std::uint64_t _expected = 0; ///< bytes of data, without the checksums
    std::uint64_t _appended = 0;
    std::vector<std::byte> _collected;
    detail::Checksum _block;           ///< checksum of an incomplete block
    std::vector<std::byte> _checksums; ///< checksums of blocks, not written yet
    std::uint64_t _checksums_at = 0;   ///< offset of the first of them in `checksum_file`
    std::vector<std::byte> _groups;    ///< their checksums
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Writes the tensors of a model for other programs: into one file, or into several with an
/// index, as Hugging Face names them. Every file appears when it is complete, and the index last.
/// If the model is not finished, its files are removed.
class ModelWriter {
public:
    /// @brief Creates the first file. None of them may exist.
    /// @param file path of the model in one file, such as "model.safetensors"
    /// @param tensors as for `SafetensorsWriter`
    /// @param max_file_bytes data of a file; a larger tensor has a file of its own. 0: one file
    /// @throws CheckpointError also for a name that two tensors have
    ModelWriter(std::filesystem::path const& file, std::vector<TensorEntry> tensors,
                std::uint64_t max_file_bytes);
    ModelWriter(ModelWriter const&) = delete;
    ModelWriter& operator=(ModelWriter const&) = delete;
    ~ModelWriter();

    /// @brief Appends data: all tensors one after another, cut anywhere.
    void append(std::span<std::byte const> bytes);

    /// @brief Returns whether a file other than the last one has its data, so that `finish_file`
    /// should be called.
    [[nodiscard]] bool is_file_full() const noexcept {
        return _left == 0 && _writer.has_value() && _next < _files.size();
    }

    /// @brief Makes a file that is full durable. `append` calls it if the caller did not, but may
    /// then wait for the file system.
    void finish_file();

    /// @brief Completes the last file and writes the index.
    void finish();

private:
    void begin_file();

    std::filesystem::path _model;
    std::vector<std::vector<TensorEntry>> _files;
    std::vector<std::filesystem::path> _paths;
    std::size_t _next = 0;                    ///< the file after that of `_writer`
    std::uint64_t _left = 0;                  ///< bytes that `_writer` lacks
    std::optional<SafetensorsWriter> _writer; ///< empty: complete
    bool _is_finished = false;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "detail/safetensors_writer.ipp"
#endif
