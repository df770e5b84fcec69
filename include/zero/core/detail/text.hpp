#pragma once

#include "namespace.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief One piece of a message: a text or a number. A text is referenced, not copied.
class TextPiece {
public:
    // NOLINTBEGIN(google-explicit-constructor): messages are lists of texts and numbers
    TextPiece(char const* text) noexcept
        : _characters(text), _size(std::char_traits<char>::length(text)) {}
    TextPiece(std::string_view text) noexcept : _characters(text.data()), _size(text.size()) {}
    TextPiece(std::string const& text) noexcept : _characters(text.data()), _size(text.size()) {}
    TextPiece(char character) noexcept
        : _character(character), _characters(&_character), _size(1) {}
    TextPiece(int value) noexcept : TextPiece(static_cast<long long>(value)) {}
    TextPiece(long value) noexcept : TextPiece(static_cast<long long>(value)) {}
    TextPiece(long long value) noexcept : _kind(Kind::integer), _integer(value) {}
    TextPiece(unsigned value) noexcept : TextPiece(static_cast<unsigned long long>(value)) {}
    TextPiece(unsigned long value) noexcept : TextPiece(static_cast<unsigned long long>(value)) {}
    TextPiece(unsigned long long value) noexcept : _kind(Kind::natural), _natural(value) {}
    TextPiece(double value) noexcept : _kind(Kind::real), _real(value) {}
    // NOLINTEND(google-explicit-constructor)
    TextPiece(TextPiece const&) = delete; // _characters may point into this object
    TextPiece& operator=(TextPiece const&) = delete;
    ~TextPiece() = default;

    /// @brief Appends the piece to `text`.
    void add_to(std::string& text) const;

private:
    enum class Kind : unsigned char { characters, integer, natural, real };

    Kind _kind = Kind::characters;
    char _character = '\0';
    // NOLINTBEGIN(readability-identifier-naming): members of an anonymous union are private here
    union {
        char const* _characters;
        long long _integer;
        unsigned long long _natural;
        double _real;
    };
    // NOLINTEND(readability-identifier-naming)
    std::size_t _size = 0;
};

/// @brief Concatenates the pieces: `text({"bucket ", bucket, " of unit '", name, '\''})`.
///
/// It is one call without temporary strings. Otherwise error messages would dominate the compile
/// time of a translation unit that uses the library.
[[gnu::cold]] std::string text(std::initializer_list<TextPiece> pieces);

/// @brief Returns a text up to its first line break. Messages of other libraries may continue with
/// a stack trace, which would hide the cause in the messages of the other ranks.
[[gnu::cold]] std::string_view first_line(std::string_view text) noexcept;

/// @brief Returns an address as a text such as "0x7f00".
[[gnu::cold]] std::string hexadecimal(void const* address);

/// @brief Returns a number of bytes for readers: "512 bytes", "1.05 GB" (10^9 bytes). Rounded to
/// two decimals from 10 kB on.
[[gnu::cold]] std::string bytes_text(std::size_t bytes);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "text.ipp"
#endif
