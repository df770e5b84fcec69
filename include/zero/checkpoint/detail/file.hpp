#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief A file of the operating system. Every failure is a CheckpointError with its name and the
/// system's reason.
class File {
public:
    /// @brief How `open` treats a symbolic link. Inside a checkpoint none is followed.
    enum class Links : bool { refused, followed };

    /// @brief Opens a regular file for reading.
    [[nodiscard]] static File open(std::filesystem::path path, Links links = Links::refused);

    /// Reads all of `into` at an offset.
    using Read = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;

    /// @brief Returns a file that is read by a function. @param path for messages
    [[nodiscard]] static File read_by(std::filesystem::path path, std::uint64_t bytes, Read read);

    /// @brief Creates a file, which must not exist, for writing.
    [[nodiscard]] static File create(std::filesystem::path path);

    /// @brief Creates a file that gets its name when it is complete, and replaces another one then.
    /// It is written as "NAME.incomplete", in place of the remains of an earlier attempt, and
    /// removed if it is destroyed before.
    [[nodiscard]] static File create_named_last(std::filesystem::path path);

    File(File&& other) noexcept;
    File& operator=(File&&) = delete;
    ~File();

    [[nodiscard]] std::string name() const { return _path.string(); }

    /// @brief Closes a file that was opened for reading. Until `reopen` only `name` may be called.
    void close() noexcept;

    /// @brief Opens it again if it was closed. It may be another file by now.
    void reopen();

    [[nodiscard]] std::uint64_t size() const;

    /// @brief Refuses a file of more than `most` bytes, before memory is allocated for it.
    void require_at_most(std::uint64_t most) const;

    /// @brief Reads all of `into`. A file that ends earlier is an error.
    void read_at(std::uint64_t offset, std::span<std::byte> into) const;

    /// @brief Announces that a range will be read, so that the system reads ahead.
    void will_read(std::uint64_t offset, std::uint64_t bytes) const noexcept;

    /// @brief Appends all of `bytes` to the data of earlier calls.
    void write(std::span<std::byte const> bytes);

    /// @brief Writes all of `bytes` at `offset`. Does not move the position of `write`.
    void write_at(std::uint64_t offset, std::span<std::byte const> bytes);

    /// @brief Makes the content durable, closes the file and gives it its name.
    void sync_and_close();

private:
    File(std::filesystem::path path, int descriptor) noexcept;
    [[nodiscard]] std::filesystem::path incomplete() const;
    [[noreturn]] void fail(std::string_view what) const;
    template <class Write>
    void write_all(std::span<std::byte const> bytes, Write const& write) const;

    std::filesystem::path _path;
    int _descriptor;
    Links _links = Links::refused;
    bool _is_named_last = false; ///< and is not complete
    Read _read{};                ///< empty: the system reads it
    std::uint64_t _bytes = 0;    ///< of a file that `_read` reads
};

/// @brief Keeps a folder for one save, until it is destroyed or the process ends. A no-op on file
/// systems without locks.
class FolderLock {
public:
    FolderLock() = default; ///< holds nothing

    /// @throws CheckpointError if the folder is held, or cannot be opened
    explicit FolderLock(std::filesystem::path const& folder);

    FolderLock(FolderLock&& other) noexcept;
    FolderLock& operator=(FolderLock&& other) noexcept;
    ~FolderLock();

    /// @brief Returns whether another lock holds a folder.
    [[nodiscard]] static bool is_held(std::filesystem::path const& folder) noexcept;

private:
    int _descriptor = -1;
};

/// @brief Makes the names in a folder durable. @throws CheckpointError
void sync_folder(std::filesystem::path const& folder);

/// @brief Reads a whole file. @throws CheckpointError also if it has more than `most` bytes
[[nodiscard]] std::string read_text(std::filesystem::path const& path, std::uint64_t most,
                                    File::Links links = File::Links::refused);

/// @brief Creates a file with this content and makes it durable. @throws CheckpointError
void write_text(std::filesystem::path const& path, std::string_view text);

/// @brief Returns the name of this host, or "unknown".
[[nodiscard]] std::string host_name();

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "file.ipp"
#endif
