#pragma once

#include "../file_calls.hpp"

#include <cerrno>
#include <string>

#include <fcntl.h>
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
    [[nodiscard]] int create(char const* folder, bool is_direct) override {
        int const direct = is_direct ? direct_access : 0;
#if defined(O_TMPFILE)
        int const unnamed = ::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0600);
        if (unnamed >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
            return unnamed >= 0 ? unnamed : -errno;
        }
#endif
        // This file system has no files without a name, so the name is removed at once.
        std::string path = std::string(folder) + "/zero_tier_XXXXXX";
        int const file = ::mkostemp(path.data(), O_CLOEXEC | direct);
        if (file < 0) {
            return -errno;
        }
        ::unlink(path.c_str());
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
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE FileCalls& FileCalls::system() {
    static detail::SystemFileCalls calls;
    return calls;
}

} // namespace ZERO_NAMESPACE
