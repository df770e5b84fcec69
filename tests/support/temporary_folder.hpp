#pragma once

// A folder for the files of one test case, and the files in it.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zero::test {

/// @brief A new, empty folder, which is removed with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "zero-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot create " + name);
        }
        _path = name;
    }
    TemporaryFolder(TemporaryFolder const&) = delete;
    TemporaryFolder& operator=(TemporaryFolder const&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(_path, ignored);
    }

    [[nodiscard]] std::filesystem::path const& path() const { return _path; }

    [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
        return _path / name;
    }

private:
    std::filesystem::path _path;
};

/// @brief Returns the bytes of a file; empty if there is none.
inline std::string content_of(std::filesystem::path const& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// @brief Replaces a file.
inline void set_content(std::filesystem::path const& file, std::string_view content) {
    std::ofstream stream(file, std::ios::binary | std::ios::trunc);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
}

using Names = std::vector<std::string>;

/// @brief Returns the sorted names of the files and folders in a folder.
inline Names entries(std::filesystem::path const& folder) {
    Names names;
    for (auto const& entry : std::filesystem::directory_iterator(folder)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

} // namespace zero::test
