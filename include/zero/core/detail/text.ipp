#pragma once

#include "text.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace ZERO_NAMESPACE::detail {

/// Appends a number with the fewest digits, from 6 to 17, that read back as the same number; for a
/// float, as the same float.
ZERO_COLD_INLINE void add_real(std::string& text, double value) {
    char digits[32];
    bool is_exact = false;
    for (int precision = 6; precision <= 17 && !is_exact; ++precision) {
        std::snprintf(digits, sizeof digits, "%.*g", precision, value);
        double const read = std::strtod(digits, nullptr);
        is_exact = read == value
                   || (static_cast<double>(static_cast<float>(value)) == value
                       && static_cast<double>(static_cast<float>(read)) == value);
    }
    text += digits;
}

ZERO_COLD_INLINE void TextPiece::add_to(std::string& text) const {
    switch (_kind) {
    case Kind::characters: text.append(_characters, _size); break;
    case Kind::integer: text += std::to_string(_integer); break;
    case Kind::natural: text += std::to_string(_natural); break;
    case Kind::real: add_real(text, _real); break;
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

ZERO_COLD_INLINE std::string bytes_text(std::size_t bytes) {
    if (bytes < 10'000) {
        return text({bytes, " bytes"});
    }
    constexpr char const* names[] = {" kB", " MB", " GB", " TB"};
    std::size_t name = 0;
    std::size_t unit = 1000;
    for (; name < 3 && bytes / unit >= 1000; unit *= 1000) {
        ++name;
    }
    std::size_t const hundredths = bytes / (unit / 100) + (bytes / (unit / 200)) % 2; // rounded
    return text({hundredths / 100, '.', hundredths / 10 % 10, hundredths % 10, names[name]});
}

} // namespace ZERO_NAMESPACE::detail
