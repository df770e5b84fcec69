#pragma once

#include "text.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void TextPiece::add_to(std::string& text) const {
    switch (_kind) {
    case Kind::characters: text.append(_characters, _size); break;
    case Kind::integer: text += std::to_string(_integer); break;
    case Kind::natural: text += std::to_string(_natural); break;
    case Kind::real: text += std::to_string(_real); break;
    }
}

[[gnu::noinline]] ZERO_COLD_INLINE std::string text(std::initializer_list<TextPiece> pieces) {
    std::string result;
    for (TextPiece const& piece : pieces) {
        piece.add_to(result);
    }
    return result;
}

ZERO_COLD_INLINE std::string_view first_line(std::string_view text) noexcept {
    return text.substr(0, text.find_first_of("\r\n"));
}

ZERO_COLD_INLINE std::string hexadecimal(void const* address) {
    auto number = reinterpret_cast<std::uintptr_t>(address);
    std::string digits;
    do {
        digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
        number /= 16;
    } while (number != 0);
    return "0x" + digits;
}

} // namespace ZERO_NAMESPACE::detail
