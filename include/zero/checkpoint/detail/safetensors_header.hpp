#pragma once

#include "../../core/detail/namespace.hpp"
#include "../tensor_entry.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The tensor before the last: checksums of blocks of the data before it.
inline constexpr std::string_view block_checksums = "xxh3_blocks";

/// @brief The last tensor: checksums of blocks of that tensor's data.
inline constexpr std::string_view group_checksums = "xxh3_groups";

/// @brief The metadata of a file whose checksums are beside it: the checksum of its index, in which
/// these digits are zeros.
inline constexpr char const* index_checksum_key = "xxh3_index";

/// @brief Returns the name of the file that holds the checksums of an exported file: those of the
/// blocks, and then those of the blocks of these.
[[nodiscard]] inline std::string checksums_beside(std::string const& file) {
    return file + ".checksums";
}

/// @brief Returns the place of the digits of `index_checksum_key` in a header; `npos` if it has
/// none or other ones.
[[nodiscard]] std::size_t index_checksum_place(std::string_view json, std::string_view digits);

/// @brief Returns whether a tensor holds checksums.
[[nodiscard]] constexpr bool holds_checksums(std::string_view name) noexcept {
    return name == block_checksums || name == group_checksums;
}

/// @brief The header of a safetensors file: its tensors and their places in the data.
struct SafetensorsHeader {
    std::vector<TensorEntry> tensors; ///< ascending, without gaps
    std::map<std::string, std::string> metadata;

    /// @brief Returns the size of the data in bytes.
    [[nodiscard]] std::uint64_t data_bytes() const noexcept {
        return tensors.empty() ? 0 : tensors.back().end;
    }

    /// @brief Computes the offsets from types and shapes, and appends the tensors of checksums
    /// unless these are in another file.
    /// @throws CheckpointError for an unknown type, a name that occurs twice or is reserved
    void place(std::string const& file, ChecksumPlace checksums);

    /// @brief Returns the JSON text, padded so that the data starts at a multiple of 64 bytes.
    /// @param file for messages
    /// @throws CheckpointError for a text that is not UTF-8
    [[nodiscard]] std::string to_json(std::string const& file) const;

    /// @brief Reads and checks a JSON text.
    /// @param file for messages, @param data_bytes number of bytes after the header
    /// @throws CheckpointError unless the tensors cover the data without gap and overlap, and have
    /// the sizes of their shapes
    [[nodiscard]] static SafetensorsHeader from_json(std::string_view json, std::string const& file,
                                                     std::uint64_t data_bytes);
};

/// @brief Returns the size of a tensor in bytes; the largest integer if that overflows or the type
/// is unknown.
[[nodiscard]] std::uint64_t tensor_bytes(TensorEntry const& tensor) noexcept;

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "safetensors_header.ipp"
#endif
