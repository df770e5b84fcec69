#pragma once

#include <string>
#include <string_view>
#include <vector>

// Pieces of PTX text.

namespace zero::test::ptx {

inline std::string trimmed(std::string_view text) {
    constexpr char const* space = " \t\r\n";
    std::size_t const begin = text.find_first_not_of(space);
    return begin == std::string_view::npos
               ? ""
               : std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

/// Splits at a separator outside of brackets, and trims. Empty pieces are left out.
inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> pieces;
    std::size_t begin = 0;
    int depth = 0;
    auto const add = [&](std::size_t end) {
        std::string piece = trimmed(text.substr(begin, end - begin));
        if (!piece.empty()) {
            pieces.push_back(std::move(piece));
        }
        begin = end + 1;
    };
    for (std::size_t at = 0; at < text.size(); ++at) {
        char const c = text[at];
        depth += c == '{' || c == '[' || c == '(' ? 1 : c == '}' || c == ']' || c == ')' ? -1 : 0;
        if (c == separator && depth == 0) {
            add(at);
        }
    }
    add(text.size());
    return pieces;
}

/// The pieces of a list in braces or parentheses; text without them is one piece.
inline std::vector<std::string> list_of(std::string_view text) {
    bool const is_list = !text.empty() && (text.front() == '{' || text.front() == '(');
    return split(is_list ? text.substr(1, text.size() - 2) : text, ',');
}

} // namespace zero::test::ptx
