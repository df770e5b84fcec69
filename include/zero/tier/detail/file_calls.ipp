#pragma once

#include "../file_calls.hpp"

#include "../../core/detail/text.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ZERO_NAMESPACE::detail {

#if defined(O_DIRECT)
inline constexpr int direct_access = O_DIRECT;
#else
inline constexpr int direct_access = 0; // macOS: all accesses go through the page cache
#endif

/// @brief Calls the system. A call that a signal interrupted is made again.
class SystemFileCalls final : public FileCalls {
public:
    /// @param has_unnamed whether to try files that never have a name
    explicit SystemFileCalls(bool has_unnamed) noexcept : _has_unnamed(has_unnamed) {}

    [[nodiscard]] int create(char const* folder, bool is_direct) override {
        int const direct = is_direct ? direct_access : 0;
#if defined(O_TMPFILE)
        if (_has_unnamed) {
            int const unnamed = ::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0600);
            if (unnamed >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
                return unnamed >= 0 ? unnamed : -errno;
            }
        }
#endif
        // This file system has no files without a name, so the name is removed at once.
        remove_left(folder);
        int const file = create_named(folder);
        // Direct access is asked for later: an open that refuses it has already made the file.
        if (file >= 0 && direct != 0
            && ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | direct) != 0) {
            int const error = errno;
            ::close(file);
            return -error;
        }
        return file;
    }

    [[nodiscard]] std::int64_t alignment(int file, bool is_direct) override {
        if (!is_direct) {
            return 1;
        }
#if defined(STATX_DIOALIGN)
        struct statx status {};
        if (::statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0
            && (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_offset_align != 0) {
            auto const offset = status.stx_dio_offset_align;
            auto const memory = status.stx_dio_mem_align;
            return static_cast<std::int64_t>(offset > memory ? offset : memory);
        }
#else
        static_cast<void>(file);
#endif
        return 4096; // that of a block of every usual disk
    }

    [[nodiscard]] int allocate(int file, std::uint64_t bytes) override {
        int error = EINTR;
        while (error == EINTR) {
            error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
        }
        return -error;
    }

    [[nodiscard]] std::int64_t read(int file, void* to, std::size_t bytes,
                                    std::uint64_t offset) override {
        ssize_t const count = ::pread(file, to, bytes, static_cast<off_t>(offset));
        return count < 0 ? -errno : count;
    }

    [[nodiscard]] std::int64_t write(int file, void const* from, std::size_t bytes,
                                     std::uint64_t offset) override {
        ssize_t const count = ::pwrite(file, from, bytes, static_cast<off_t>(offset));
        return count < 0 ? -errno : count;
    }

    void close(int file) noexcept override { ::close(file); }

private:
    /// Removes the files of processes that were killed before they removed the name. A process
    /// holds the lock of its file as long as it lives, and the file is empty until then.
    [[gnu::cold]] static void remove_left(char const* folder) {
        std::error_code error;
        std::filesystem::directory_iterator entry(folder, error);
        for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
            std::string const name = entry->path().filename().string();
            std::string_view const all = name;
            std::string_view const pattern = name_pattern;
            std::size_t const fixed = pattern.find('X');
            if (all.size() != pattern.size() || all.substr(0, fixed) != pattern.substr(0, fixed)) {
                continue;
            }
            char const* const path = entry->path().c_str();
            int const file = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
            struct stat status {};
            if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)
                && status.st_size == 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0) {
                ::unlink(path);
            }
            if (file >= 0) {
                ::close(file);
            }
        }
    }

    [[gnu::cold]] static int create_named(char const* folder) {
        for (int tries = 0; tries < 100; ++tries) {
            std::string path = text({folder, "/", name_pattern});
            int const file = ::mkostemp(path.data(), O_CLOEXEC);
            if (file < 0) {
                return -errno;
            }
            bool const has_lock = ::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
            struct stat status {};
            bool const is_whole = ::fstat(file, &status) == 0 && status.st_nlink != 0;
            ::unlink(path.c_str());
            if (has_lock && is_whole) {
                return file;
            }
            ::close(file); // before it was locked, another process took it for one that was left
        }
        return -EAGAIN;
    }

    static constexpr char const* name_pattern = ".zero_tier.XXXXXX";
    bool _has_unnamed;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE FileCalls& FileCalls::system() {
    static detail::SystemFileCalls calls(true);
    return calls;
}

ZERO_COLD_INLINE FileCalls& FileCalls::system_with_names() {
    static detail::SystemFileCalls calls(false);
    return calls;
}

} // namespace ZERO_NAMESPACE
