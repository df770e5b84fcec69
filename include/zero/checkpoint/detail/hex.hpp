#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

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
