#pragma once

#include <cstddef>
#include <cstdlib>
#include <cxxabi.h>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// Reads the machine code of kernels as `nvdisasm -c` prints it.
namespace zero::test {

/// @brief One instruction, such as `@!P0 BRA (.L_x_5)`.
struct SassInstruction {
    std::string text;

    [[nodiscard]] bool is_predicated() const { return text[0] == '@'; }

    /// The name with its modifiers, such as `LDG.E.128`.
    [[nodiscard]] std::string operation() const {
        std::size_t const begin = is_predicated() ? text.find(' ') + 1 : 0;
        return text.substr(begin, text.find(' ', begin) - begin);
    }

    /// The operands, such as `R4, R4, R6`.
    [[nodiscard]] std::string operands() const {
        std::size_t const begin = is_predicated() ? text.find(' ') + 1 : 0;
        std::size_t const space = text.find(' ', begin);
        return space == std::string::npos ? "" : text.substr(space + 1);
    }
};

/// @brief A kernel: its instructions, and the positions of its labels among them.
struct SassKernel {
    std::string name; ///< as in the source
    std::vector<SassInstruction> instructions;
    std::map<std::string, std::size_t> labels;

    /// @brief Returns which instructions may follow instruction i.
    [[nodiscard]] std::vector<std::size_t> successors(std::size_t i) const {
        SassInstruction const& at = instructions[i];
        std::string const operation = at.operation();
        std::vector<std::size_t> result;
        bool continues = true;
        if (operation.rfind("EXIT", 0) == 0 || operation.rfind("RET", 0) == 0) {
            continues = at.is_predicated();
        } else if (operation.rfind("BRA", 0) == 0) {
            std::string const operands = at.operands();
            auto const begin = operands.find(".L");
            auto const label = labels.find(operands.substr(begin, operands.find(')') - begin));
            if (label != labels.end()) {
                result.push_back(label->second);
            }
            continues = at.is_predicated() || operands[0] != '`'; // some name their condition last
        }
        if (continues && i + 1 < instructions.size()) {
            result.push_back(i + 1);
        }
        return result;
    }
};

/// @brief Returns a name as in the source.
inline std::string demangled(std::string const& mangled) {
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> const name(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
    return status == 0 ? name.get() : mangled;
}

/// @brief Returns the kernels in a disassembly.
inline std::vector<SassKernel> parse_sass(std::string const& text) {
    std::vector<SassKernel> kernels;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        static std::string const section = ".text.";
        if (line.rfind(section, 0) == 0) {
            std::size_t const length = line.find(':') - section.size();
            kernels.push_back({demangled(line.substr(section.size(), length)), {}, {}});
        } else if (kernels.empty()) {
            continue;
        } else if (line.rfind(".L", 0) == 0) {
            kernels.back().labels[line.substr(0, line.find(':'))] =
                kernels.back().instructions.size();
        } else if (auto const end = line.find("*/ "), semicolon = line.find(';');
                   end != std::string::npos && semicolon != std::string::npos) {
            auto const begin = line.find_first_not_of(' ', end + 3);
            auto const last = line.find_last_not_of(' ', semicolon - 1);
            kernels.back().instructions.push_back({line.substr(begin, last + 1 - begin)});
        }
    }
    return kernels;
}

/// @brief One turn of a loop.
struct SassLoop {
    std::size_t instructions = 0; ///< without no-operations
    std::size_t loads = 0;        ///< those of 16 bytes among them
    friend bool operator==(SassLoop const&, SassLoop const&) = default;
};

/// @brief Returns the shortest way from a load of 16 bytes back to it that passes an instruction
/// whose operation begins with `through`; nothing if there is none.
///
/// Rare cases, such as an infinity, are longer ways, so this is what a loop usually executes.
inline std::optional<SassLoop> shortest_loop(SassKernel const& kernel, std::string const& through) {
    auto const begins = [&](std::size_t i, std::string const& name) {
        return kernel.instructions[i].operation().rfind(name, 0) == 0;
    };
    using Place = std::pair<std::size_t, bool>; // instruction, and whether `through` was passed
    std::optional<SassLoop> shortest;
    for (std::size_t start = 0; start < kernel.instructions.size(); ++start) {
        if (!begins(start, "LDG.E.128")) {
            continue;
        }
        std::map<Place, SassLoop> ways{{{start, through.empty()}, {1, 1}}};
        std::deque<Place> queue{{start, through.empty()}}; // in the order of instructions
        while (!queue.empty()) {
            Place const place = queue.front();
            queue.pop_front();
            SassLoop const way = ways[place];
            if (shortest && way.instructions >= shortest->instructions) {
                break;
            }
            for (std::size_t const next : kernel.successors(place.first)) {
                Place const there{next, place.second || begins(next, through)};
                if (next == start && there.second) {
                    shortest = way; // shorter than before, because the loop above ends otherwise
                    continue;
                }
                bool const counts = !begins(next, "NOP");
                SassLoop const longer{way.instructions + (counts ? 1 : 0),
                                      way.loads + (begins(next, "LDG.E.128") ? 1 : 0)};
                auto const known = ways.find(there);
                if (known == ways.end() || longer.instructions < known->second.instructions) {
                    ways[there] = longer;
                    if (counts) {
                        queue.push_back(there);
                    } else {
                        queue.push_front(there);
                    }
                }
            }
        }
    }
    return shortest;
}

} // namespace zero::test
