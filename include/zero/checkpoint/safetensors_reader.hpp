#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/file.hpp"
#include "detail/safetensors_header.hpp"
#include "tensor_entry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Keeps the last blocks that were read from a file, because callers alternate between a few
/// places.
class KeptBlocks {
public:
    /// @brief Returns a block, which is valid until the next call.
    /// @param read called as `read(span)` if the block is not kept; may throw
    template <class Read>
    std::span<std::byte const> get(std::uint64_t number, std::size_t bytes, Read const& read) {
        for (Block const& block : _blocks) {
            if (block.number == number) {
                return {block.bytes.data(), block.bytes.size()};
            }
        }
        Block& block = _blocks[_oldest];
        _oldest = (_oldest + 1) % _blocks.size();
        block.number.reset();
        block.bytes.resize(bytes);
        std::span<std::byte> const memory(block.bytes.data(), bytes);
        read(memory);
        block.number = number;
        return memory;
    }

private:
    struct Block {
        std::optional<std::uint64_t> number; ///< empty: none
        std::vector<std::byte> bytes;
    };

    std::array<Block, 8> _blocks;
    std::size_t _oldest = 0; ///< the next to be replaced
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Reads one safetensors file, and verifies its data if the file has checksums.
///
/// Whatever the bytes of the file are, every call returns the right data or throws a
/// CheckpointError. Memory: proportional to the header, plus 32 KiB, plus 8 bytes for each 512 KiB
/// of data.
class SafetensorsReader {
public:
    /// @brief Opens a file and checks its header.
    /// @param index_checksum as `SafetensorsWriter::finish` returned it; if given, the file must
    /// have this index and must not be a symbolic link, as in a checkpoint. Files of other programs
    /// have neither index checksum nor checksums
    explicit SafetensorsReader(std::filesystem::path const& file,
                               std::optional<std::uint64_t> index_checksum = {});

    /// @brief Reads a file of a checkpoint that was opened before.
    SafetensorsReader(detail::File file, std::optional<std::uint64_t> index_checksum);

    /// @brief Returns all tensors in the order of their data, those of the checksums included.
    [[nodiscard]] std::vector<TensorEntry> const& tensors() const noexcept {
        return _header.tensors;
    }

    /// @brief Returns the tensor of that name, or null. O(1).
    [[nodiscard]] TensorEntry const* find(std::string_view name) const;

    /// @brief The same, faster for a tensor that follows the one of the last call or is the same.
    [[nodiscard]] TensorEntry const* find_next(std::string_view name);

    /// @brief Returns the texts that the program which wrote the file has added.
    [[nodiscard]] std::map<std::string, std::string> const& metadata() const noexcept {
        return _header.metadata;
    }

    /// @brief Reads bytes [offset, offset + into.size()) of a tensor, and verifies the blocks that
    /// they touch. It returns the bytes that it verified, even if the file changes during the call.
    void read(TensorEntry const& tensor, std::uint64_t offset, std::span<std::byte> into);

    /// @brief Verifies the same bytes without keeping them. Verifies nothing if the file has no
    /// checksums.
    void verify(TensorEntry const& tensor, std::uint64_t offset, std::uint64_t bytes);

    /// @brief Closes the file until the next read, which opens it again.
    void close() noexcept {
        _file.close();
        if (_beside) {
            _beside->close();
        }
    }

    /// @brief Returns the number of bytes read from the file so far.
    [[nodiscard]] std::uint64_t bytes_read() const noexcept { return _bytes_read; }

private:
    void read_at(detail::File& file, std::uint64_t offset, std::span<std::byte> into);
    void read_beside(std::string const& json);
    [[nodiscard]] bool has_checksums() const noexcept;
    void read_groups(std::optional<std::uint64_t> index_checksum, std::string const& json);
    void require_inside(TensorEntry const& tensor, std::uint64_t offset, std::uint64_t bytes) const;
    [[nodiscard]] char const* remedy() const noexcept;
    [[nodiscard]] std::uint64_t checksum(std::uint64_t block, TensorEntry const& tensor);
    [[nodiscard]] std::uint64_t block_end(std::uint64_t block) const noexcept;
    void read_blocks(std::uint64_t block, std::span<std::byte> into, TensorEntry const& tensor);
    std::span<std::byte const> read_block(std::uint64_t block, TensorEntry const& tensor);

    detail::File _file;
    std::optional<detail::File> _beside; ///< its checksums, if they are not in the file itself
    detail::SafetensorsHeader _header;
    std::unordered_map<std::string_view, std::size_t> _by_name;
    std::size_t _last = 0;              ///< the tensor that `find_next` has found
    std::uint64_t _data_begin = 0;      ///< offset of the data in the file
    std::uint64_t _covered = 0;         ///< bytes of data that have checksums
    std::uint64_t _checksums_begin = 0; ///< offset of the checksums in their file
    std::vector<std::uint64_t> _groups; ///< checksums of blocks of checksums; empty: none
    detail::KeptBlocks _kept;           ///< verified blocks that were needed in part
    detail::KeptBlocks _kept_checksums; ///< verified blocks of checksums
    std::uint64_t _bytes_read = 0;
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief The safetensors files of a model, as Hugging Face names them.
struct ModelFiles {
    std::vector<std::filesystem::path> files;
    std::filesystem::path index;                  ///< empty: one file without an index
    std::map<std::string, std::size_t> tensors{}; ///< the file of each tensor, as the index says

    /// @brief Finds the files of a model. @param path a file, an index, or a folder with either
    /// @throws CheckpointError for an index that is none, or that names a file which is missing or
    /// not beside it
    [[nodiscard]] static ModelFiles at(std::filesystem::path const& path);

    /// @throws CheckpointError that lists the tensors which are not where the index says, or which
    /// two files have
    void require_tensors(std::span<std::unique_ptr<SafetensorsReader> const> opened) const;
};

/// @brief Returns the path of the index beside a model's files. @param file the path of the model
/// in one file
[[nodiscard]] inline std::filesystem::path index_beside(std::filesystem::path const& file) {
    return file.string() + ".index.json";
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "detail/safetensors_reader.ipp"
#endif
