#pragma once

// Runs programs of the project.

#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <system_error>

namespace zero::test {

struct ProgramOutcome {
    std::string output; ///< both streams
    int status = -1;

    [[nodiscard]] bool contains(std::string const& text) const {
        return output.find(text) != std::string::npos;
    }

    /// @brief Returns the text between the last `label` and the end of its line.
    [[nodiscard]] std::string after(std::string const& label) const {
        auto const at = output.rfind(label);
        if (at == std::string::npos) {
            return {};
        }
        auto const begin = at + label.size();
        return output.substr(begin, output.find('\n', begin) - begin);
    }
};

/// @brief Runs a shell command and waits for it.
inline ProgramOutcome run_program(std::string const& command) {
    ProgramOutcome outcome;
    std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) {
        return outcome;
    }
    std::array<char, 4096> part{};
    for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), pipe)) != 0;) {
        outcome.output.append(part.data(), count);
    }
    int const status = ::pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

/// @brief Returns the number of files in the memory of this machine that have a name of the
/// library. The fuzz tests of checkpoints, which may run at the same time, have files of their own
/// there.
inline std::size_t files_in_memory() {
    std::size_t count = 0;
    std::error_code error;
    for (auto const& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
        std::string const name = entry.path().filename().string();
        bool const is_fuzz = name.find("zero-fuzz-") != std::string::npos;
        count += !is_fuzz && name.find("zero") != std::string::npos ? 1U : 0U;
    }
    return count;
}

} // namespace zero::test
