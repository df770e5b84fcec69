#pragma once

#include "namespace.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief One piece of a message: a text or a number. Refers to the text.
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
    TextPiece(TextPiece const&) = delete; // a character's text is inside
    TextPiece& operator=(TextPiece const&) = delete;
    ~TextPiece() = default;

    void add_to(std::string& text) const {
        switch (_kind) {
        case Kind::characters: text.append(_characters, _size); break;
        case Kind::integer: text += std::to_string(_integer); break;
        case Kind::natural: text += std::to_string(_natural); break;
        case Kind::real: text += std::to_string(_real); break;
        }
    }

private:
    enum class Kind : unsigned char { characters, integer, natural, real };

    Kind _kind = Kind::characters;
    char _character = '\0';
    union { // NOLINTBEGIN(readability-identifier-naming): its members are as private as it is
        char const* _characters;
        long long _integer;
        unsigned long long _natural;
        double _real;
    }; // NOLINTEND(readability-identifier-naming)
    std::size_t _size = 0;
};

/// @brief The pieces in a row: `text({"bucket ", bucket, " of unit '", name, '\''})`.
///
/// One call and no temporary strings: messages are most of what a unit that uses this library would
/// otherwise compile.
[[gnu::noinline, gnu::cold]] inline std::string text(std::initializer_list<TextPiece> pieces) {
    std::string result;
    for (TextPiece const& piece : pieces) {
        piece.add_to(result);
    }
    return result;
}

} // namespace ZERO_NAMESPACE::detail
