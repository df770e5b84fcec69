#pragma once

// Pages of the documentation: their text and their fenced blocks.

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace zero::test {

/// @brief Returns the text of a file of the project, given by its path from the root. Empty if
/// there is no such file.
inline std::string text_of(std::string const& path) {
    std::ifstream file(ZERO_SOURCE_DIR "/" + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// @brief Returns the fenced blocks of a page in this language, in order.
inline std::vector<std::string> blocks_of(std::string const& page, std::string const& language) {
    std::vector<std::string> found;
    std::string const text = text_of(page);
    std::string const begin = "```" + language + "\n";
    for (std::size_t at = text.find(begin); at != std::string::npos;
         at = text.find(begin, at + 1)) {
        std::size_t const first = at + begin.size();
        found.push_back(text.substr(first, text.find("```", first) - first));
    }
    return found;
}

inline std::vector<std::string> lines_of(std::string const& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/// @brief Returns the indented blocks of a page, in order. Empty lines do not end a block.
inline std::vector<std::string> indented_blocks_of(std::string const& page) {
    std::vector<std::string> found;
    bool is_fenced = false;
    bool is_inside = false;
    for (std::string const& line : lines_of(text_of(page))) {
        is_fenced = is_fenced != (line.rfind("```", 0) == 0);
        bool const is_indented = !is_fenced && line.rfind("    ", 0) == 0;
        if (is_indented) {
            if (!is_inside) {
                found.emplace_back();
            }
            found.back() += line + "\n";
        }
        is_inside = is_indented || (is_inside && line.empty());
    }
    return found;
}

/// @brief Returns the lines of code of a text: no comments, no indentation, no empty lines.
inline std::vector<std::string> code_lines_of(std::string const& text) {
    std::vector<std::string> found;
    for (std::string line : lines_of(text)) {
        line = line.substr(0, line.find("//"));
        line.erase(0, line.find_first_not_of(' '));
        line.erase(line.find_last_not_of(' ') + 1);
        if (!line.empty()) {
            found.push_back(line);
        }
    }
    return found;
}

/// @brief Returns whether the lines of code of `part` are lines of `whole`, in the same order.
inline bool is_excerpt(std::string const& part, std::string const& whole) {
    auto const lines = code_lines_of(whole);
    auto at = lines.begin();
    for (std::string const& line : code_lines_of(part)) {
        at = std::find(at, lines.end(), line);
        if (at == lines.end()) {
            return false;
        }
        ++at;
    }
    return true;
}

/// @brief Applies one block of a diff without line numbers: replaces the lines marked ' ' and '-'
/// by those marked ' ' and '+'.
/// @return empty if the text does not contain the old lines exactly once
inline std::string patched(std::string const& text, std::string const& diff) {
    std::string old_lines = "\n";
    std::string new_lines = "\n";
    for (std::string const& line : lines_of(diff)) {
        std::string const rest = (line.empty() ? "" : line.substr(1)) + "\n";
        old_lines += line.empty() || line[0] != '+' ? rest : "";
        new_lines += line.empty() || line[0] != '-' ? rest : "";
    }
    std::string const whole = "\n" + text;
    std::size_t const at = whole.find(old_lines);
    if (at == std::string::npos || whole.find(old_lines, at + 1) != std::string::npos) {
        return {};
    }
    return (whole.substr(0, at) + new_lines + whole.substr(at + old_lines.size())).substr(1);
}

} // namespace zero::test
