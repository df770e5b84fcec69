#pragma once

// The standard error of a part of a test.

#include "temporary_folder.hpp"

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace zero::test {

/// @brief Sends the standard error of the process to a file until it is destroyed.
class CapturedErrors {
public:
    explicit CapturedErrors(std::filesystem::path file)
        : _file(std::move(file)), _before(::dup(STDERR_FILENO)) {
        int const descriptor = ::open(_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (descriptor < 0 || _before < 0 || ::dup2(descriptor, STDERR_FILENO) < 0) {
            throw std::runtime_error("cannot capture the standard error in " + _file.string());
        }
        ::close(descriptor);
    }
    CapturedErrors(CapturedErrors const&) = delete;
    CapturedErrors& operator=(CapturedErrors const&) = delete;
    ~CapturedErrors() {
        std::fflush(stderr);
        ::dup2(_before, STDERR_FILENO);
        ::close(_before);
    }

    /// @brief Returns what was printed so far.
    [[nodiscard]] std::string text() const {
        std::fflush(stderr);
        return content_of(_file);
    }

private:
    std::filesystem::path _file;
    int _before;
};

} // namespace zero::test
