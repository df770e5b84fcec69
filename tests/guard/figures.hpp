#pragma once

// Figures that do not depend on the machine, compared with tables in the repository.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace zero::test {

using Figures = std::map<std::string, std::int64_t>;

/// @brief A table in a file: comments, a line `tolerance <percent>`, and lines `<name> <figure>`.
struct FigureTable {
    std::string comments;
    std::int64_t tolerance = 0; ///< in percent, in both directions
    Figures figures;

    static FigureTable parse(std::string const& text) {
        FigureTable table;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);) {
            auto const space = line.rfind(' ');
            if (line.empty() || line[0] == '#' || space == std::string::npos) {
                table.comments += line + '\n';
            } else if (line.substr(0, space) == "tolerance") {
                table.tolerance = std::stoll(line.substr(space));
            } else {
                table.figures[line.substr(0, space)] = std::stoll(line.substr(space));
            }
        }
        return table;
    }

    [[nodiscard]] std::string text() const {
        std::string result = comments + "tolerance " + std::to_string(tolerance) + '\n';
        for (auto const& [name, figure] : figures) {
            result += name + ' ' + std::to_string(figure) + '\n';
        }
        return result;
    }
};

/// @brief Returns one line for each figure that is out of bounds, missing in the table, or not
/// measured although `is_measurable` says that it can be.
inline std::vector<std::string>
complaints(FigureTable const& table, Figures const& measured,
           std::function<bool(std::string const&)> const& is_measurable) {
    std::vector<std::string> result;
    for (auto const& [name, figure] : measured) {
        auto const found = table.figures.find(name);
        if (found == table.figures.end()) {
            result.push_back(name + ": " + std::to_string(figure)
                             + ", and the table has no such line");
            continue;
        }
        std::int64_t const limit = found->second;
        std::string const beside =
            name + ": " + std::to_string(figure) + " where the table has " + std::to_string(limit);
        if ((figure - limit) * 100 > table.tolerance * limit) {
            result.push_back(beside + ", more than " + std::to_string(table.tolerance)
                             + " percent above: it became more expensive");
        } else if ((limit - figure) * 100 > table.tolerance * limit) {
            result.push_back(beside + ", more than " + std::to_string(table.tolerance)
                             + " percent below: it became cheaper, so record it");
        }
    }
    for (auto const& [name, figure] : table.figures) {
        if (measured.count(name) == 0 && is_measurable(name)) {
            result.push_back(name + ": the table has " + std::to_string(figure)
                             + ", but it was not measured");
        }
    }
    return result;
}

inline std::vector<std::string> complaints(FigureTable const& table, Figures const& measured) {
    return complaints(table, measured, [](std::string const&) { return true; });
}

/// @brief Returns whether to write the figures into the tables instead of comparing them.
inline bool is_update() {
    char const* const wish = std::getenv("ZERO_GUARD_UPDATE");
    return wish != nullptr && *wish != '\0';
}

/// @brief Returns the path of a table. A table that depends on the compiler carries its name and
/// major version.
inline std::string table_path(std::string const& name) {
    return ZERO_SOURCE_DIR "/tests/guard/tables/" + name + ".txt";
}
inline std::string compiler_name() {
#if defined(__clang__)
    return "clang_" + std::to_string(__clang_major__);
#else
    return "gcc_" + std::to_string(__GNUC__);
#endif
}

/// @brief Reads a table. Its figures are empty if the file is missing.
inline FigureTable read_table(std::string const& path) {
    std::ifstream file(path);
    return FigureTable::parse({std::istreambuf_iterator<char>(file), {}});
}

/// @brief Returns the complaints, one per line, and the command that accepts the new figures.
inline std::string verdict(std::string const& path, Figures const& measured,
                           std::function<bool(std::string const&)> const& is_measurable) {
    std::string result;
    for (auto const& complaint : complaints(read_table(path), measured, is_measurable)) {
        result += complaint + '\n';
    }
    return result.empty() ? result
                          : result
                                + "If this is meant, run the test with ZERO_GUARD_UPDATE=1 in the "
                                  "environment and commit "
                                + path + '\n';
}

/// @brief Compares figures with the table, or replaces the table by them.
/// @return the verdict, empty if all figures are within bounds
inline std::string check_figures(std::string const& path, Figures const& measured,
                                 std::function<bool(std::string const&)> const& is_measurable) {
    if (!is_update()) {
        return verdict(path, measured, is_measurable);
    }
    FigureTable table = read_table(path);
    for (auto const& [name, figure] : Figures(table.figures)) {
        if (is_measurable(name)) {
            table.figures.erase(name);
        }
    }
    for (auto const& [name, figure] : measured) {
        table.figures[name] = figure;
    }
    return std::ofstream(path) << table.text() ? "" : "cannot write " + path + '\n';
}

inline std::string check_figures(std::string const& path, Figures const& measured) {
    return check_figures(path, measured, [](std::string const&) { return true; });
}

} // namespace zero::test
