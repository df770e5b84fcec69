#pragma once

#include "file.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ZERO_NAMESPACE::detail {

/// The system accepts at most 2^31 bytes per call, and a call cannot be interrupted.
inline constexpr std::size_t largest_transfer = std::size_t{1} << 26U;

[[noreturn]] ZERO_COLD_INLINE void refuse_file(std::string const& name, std::string_view what,
                                               int code) {
    throw CheckpointError(text({"zero: ", what, " '", name,
                                "' failed: ", std::generic_category().message(code), "."}),
                          SourceLocation::current(), code);
}

ZERO_COLD_INLINE File::File(std::filesystem::path path, int descriptor) noexcept
    : _path(std::move(path)), _descriptor(descriptor) {}

ZERO_COLD_INLINE File::File(File&& other) noexcept
    : _path(std::move(other._path)), _descriptor(std::exchange(other._descriptor, -1)),
      _links(other._links), _is_named_last(std::exchange(other._is_named_last, false)),
      _read(std::move(other._read)), _bytes(other._bytes) {}

ZERO_COLD_INLINE File::~File() {
    close();
    if (_is_named_last) {
        ::unlink(incomplete().c_str());
    }
}

ZERO_COLD_INLINE std::filesystem::path File::incomplete() const {
    return _path.string() + ".incomplete";
}

ZERO_COLD_INLINE void File::close() noexcept {
    if (_descriptor >= 0) {
        ::close(std::exchange(_descriptor, -1));
    }
}

ZERO_COLD_INLINE void File::reopen() {
    if (_descriptor < 0 && !_read) {
        File again = open(_path, _links);
        std::swap(_descriptor, again._descriptor);
    }
}

ZERO_COLD_INLINE void File::fail(std::string_view what) const {
    refuse_file(name(), what, errno);
}

ZERO_COLD_INLINE File File::open(std::filesystem::path path, Links links) {
    // O_NONBLOCK: a pipe without a writer must not block
    int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK
                                                    | (links == Links::followed ? 0 : O_NOFOLLOW));
    if (descriptor < 0) {
        if (errno == ELOOP && links == Links::refused) {
            throw_error<CheckpointError>({"zero: '", path.string(),
                                          "' is a symbolic link, which a "
                                          "checkpoint must not contain; replace it by the file."});
        }
        refuse_file(path.string(), "opening", errno);
    }
    File file(std::move(path), descriptor);
    file._links = links;
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
        file.fail("reading the size of");
    }
    if (!S_ISREG(status.st_mode)) {
        throw_error<CheckpointError>({"zero: '", file.name(), "' is not a regular file."});
    }
    return file;
}

ZERO_COLD_INLINE File File::read_by(std::filesystem::path path, std::uint64_t bytes, Read read) {
    File file(std::move(path), -1);
    file._read = std::move(read);
    file._bytes = bytes;
    return file;
}

ZERO_COLD_INLINE File File::create(std::filesystem::path path) {
    int const descriptor =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) {
        refuse_file(path.string(), "creating", errno);
    }
    return {std::move(path), descriptor};
}

ZERO_COLD_INLINE File File::create_named_last(std::filesystem::path path) {
    File file(std::move(path), -1);
    auto const incomplete = file.incomplete();
    ::unlink(incomplete.c_str());
    File created = create(incomplete);
    std::swap(file._descriptor, created._descriptor);
    file._is_named_last = true;
    return file;
}

ZERO_COLD_INLINE std::uint64_t File::size() const {
    if (_read) {
        return _bytes;
    }
    struct stat status {};
    if (::fstat(_descriptor, &status) != 0) {
        fail("reading the size of");
    }
    return static_cast<std::uint64_t>(status.st_size);
}

ZERO_COLD_INLINE void File::read_at(std::uint64_t offset, std::span<std::byte> into) const {
    if (_read && offset + into.size() <= _bytes) {
        _read(offset, into);
        return;
    }
    for (std::size_t done = 0; done < into.size();) {
        ssize_t const count =
            ::pread(_descriptor, into.data() + done, smaller(into.size() - done, largest_transfer),
                    static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0 && !_read) {
            fail("reading");
        }
        if (count <= 0) {
            throw_error<CheckpointError>({"zero: '", name(), "' ends at byte ", offset + done,
                                          ", before what its index promises; it was truncated."});
        }
        done += static_cast<std::size_t>(count);
    }
}

ZERO_COLD_INLINE void File::require_at_most(std::uint64_t most) const {
    if (std::uint64_t const bytes = size(); bytes > most) {
        throw_error<CheckpointError>({"zero: '", name(), "' has ", bytes, " bytes, more than ",
                                      most, "; it is not a file of a checkpoint."});
    }
}

ZERO_COLD_INLINE void File::will_read(std::uint64_t offset, std::uint64_t bytes) const noexcept {
#if defined(POSIX_FADV_WILLNEED)
    (void)::posix_fadvise(_descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                          POSIX_FADV_WILLNEED);
#else
    (void)offset;
    (void)bytes;
#endif
}

template <class Write>
void File::write_all(std::span<std::byte const> bytes, Write const& write) const {
    while (!bytes.empty()) {
        ssize_t const count = write(bytes.data(), smaller(bytes.size(), largest_transfer));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            fail("writing");
        }
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

ZERO_COLD_INLINE void File::write(std::span<std::byte const> bytes) {
    write_all(bytes, [&](std::byte const* data, std::size_t count) {
        return ::write(_descriptor, data, count);
    });
}

ZERO_COLD_INLINE void File::write_at(std::uint64_t offset, std::span<std::byte const> bytes) {
    auto const* const begin = bytes.data();
    write_all(bytes, [&](std::byte const* data, std::size_t count) {
        auto const done = static_cast<std::uint64_t>(data - begin);
        return ::pwrite(_descriptor, data, count, static_cast<off_t>(offset + done));
    });
}

ZERO_COLD_INLINE void File::sync_and_close() {
    if (::fsync(_descriptor) != 0) {
        fail("making durable");
    }
    if (::close(std::exchange(_descriptor, -1)) != 0) {
        fail("closing");
    }
    if (_is_named_last) {
        if (::rename(incomplete().c_str(), _path.c_str()) != 0) {
            fail("naming");
        }
        _is_named_last = false;
        auto const folder = _path.parent_path();
        sync_folder(folder.empty() ? "." : folder);
    }
}

/// Returns a descriptor that holds the folder; -1 with `errno` if that is not possible.
ZERO_COLD_INLINE int hold_folder(std::filesystem::path const& folder) noexcept {
    int const descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(descriptor);
        errno = EWOULDBLOCK;
        return -1;
    }
    return descriptor;
}

ZERO_COLD_INLINE FolderLock::FolderLock(std::filesystem::path const& folder)
    : _descriptor(hold_folder(folder)) {
    if (_descriptor < 0) {
        refuse_file(folder.string(), "holding the folder", errno);
    }
}

ZERO_COLD_INLINE FolderLock::FolderLock(FolderLock&& other) noexcept
    : _descriptor(std::exchange(other._descriptor, -1)) {}

ZERO_COLD_INLINE FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
    std::swap(_descriptor, other._descriptor);
    return *this;
}

ZERO_COLD_INLINE FolderLock::~FolderLock() {
    if (_descriptor >= 0) {
        ::close(_descriptor);
    }
}

ZERO_COLD_INLINE bool FolderLock::is_held(std::filesystem::path const& folder) noexcept {
    int const descriptor = hold_folder(folder);
    bool const is_held = descriptor < 0 && errno == EWOULDBLOCK;
    if (descriptor >= 0) {
        ::close(descriptor);
    }
    return is_held;
}

ZERO_COLD_INLINE void sync_folder(std::filesystem::path const& folder) {
    int const descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        refuse_file(folder.string(), "opening the folder", errno);
    }
    int const result = ::fsync(descriptor);
    int const code = errno;
    ::close(descriptor);
    if (result != 0 && code != EINVAL && code != ENOTSUP) { // some file systems cannot
        refuse_file(folder.string(), "making the folder durable", code);
    }
}

ZERO_COLD_INLINE std::string read_text(std::filesystem::path const& path, std::uint64_t most,
                                       File::Links links) {
    File const file = File::open(path, links);
    file.require_at_most(most);
    std::string content(static_cast<std::size_t>(file.size()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span<char>(content.data(), content.size())));
    return content;
}

ZERO_COLD_INLINE void write_text(std::filesystem::path const& path, std::string_view text) {
    File file = File::create(path);
    file.write(std::as_bytes(std::span<char const>(text.data(), text.size())));
    file.sync_and_close();
}

ZERO_COLD_INLINE std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "unknown";
}

} // namespace ZERO_NAMESPACE::detail
