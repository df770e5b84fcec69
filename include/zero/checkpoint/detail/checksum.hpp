#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Data files have a checksum for each block of this size, and one for each block of these
/// checksums. So a rank that needs a part of a file reads little more than that part.
inline constexpr std::uint64_t checksum_block_bytes = 2048;

/// @brief Blocks of data whose checksums fill one block.
inline constexpr std::uint64_t checksums_per_block = checksum_block_bytes / 8;

/// @brief Returns the number of blocks that this number of bytes fills. The last one may be
/// shorter.
[[nodiscard]] constexpr std::uint64_t checksum_blocks(std::uint64_t bytes) noexcept {
    return bytes / checksum_block_bytes + (bytes % checksum_block_bytes != 0 ? 1 : 0);
}

/// @brief Returns the XXH3-64 checksum of bytes.
[[nodiscard]] std::uint64_t checksum_of(std::span<std::byte const> bytes) noexcept;

/// @brief Returns a checksum as 16 hexadecimal digits, the most significant first. JSON has no
/// integers of 64 bits.
[[nodiscard]] std::string checksum_text(std::uint64_t checksum);

/// @brief Reads the text of `checksum_text`; empty if it is not one.
[[nodiscard]] std::optional<std::uint64_t> checksum_from(std::string_view text);

/// @brief The XXH3-64 checksum of bytes that arrive in parts.
class Checksum {
public:
    Checksum();
    ~Checksum();
    Checksum(Checksum const&) = delete;
    Checksum& operator=(Checksum const&) = delete;

    void add(std::span<std::byte const> bytes) noexcept;

    /// @brief Returns the checksum of all bytes since the last call, and starts again with none.
    [[nodiscard]] std::uint64_t take() noexcept;

private:
    struct State;
    std::unique_ptr<State> _state;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "checksum.ipp"
#endif
