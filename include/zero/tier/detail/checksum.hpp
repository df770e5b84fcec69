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

    /// @brief Returns the checksum of all bytes since the last call, and resets it.
    [[nodiscard]] std::uint64_t take() noexcept;

private:
    struct State;
    std::unique_ptr<State> _state;
};

/// @brief Returns bytes as lower-case hexadecimal digits, two for each byte.
[[nodiscard]] inline std::string to_hex(std::span<std::byte const> bytes) {
    constexpr char const* digits = "0123456789abcdef";
    std::string text;
    for (std::byte const byte : bytes) {
        text += digits[std::to_integer<unsigned>(byte) / 16];
        text += digits[std::to_integer<unsigned>(byte) % 16];
    }
    return text;
}

/// @brief Reads the digits of `to_hex`. @return whether the text has two of them for each byte
[[nodiscard]] inline bool from_hex(std::string_view text, std::span<std::byte> bytes) {
    if (text.size() != 2 * bytes.size()) {
        return false;
    }
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::size_t const digit = std::string_view("0123456789abcdef").find(text[at]);
        if (digit == std::string_view::npos) {
            return false;
        }
        std::byte const high = at % 2 == 0 ? std::byte{0} : bytes[at / 2] << 4U;
        bytes[at / 2] = high | static_cast<std::byte>(digit);
    }
    return true;
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "checksum.ipp"
#endif
