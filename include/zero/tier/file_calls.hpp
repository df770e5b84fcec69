#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The operations of the system that a `FileTier` needs. A test derives from it to let them
/// fail. Every function returns minus the error number of the system if it fails.
///
/// May be called from several threads, with different ranges.
class FileCalls {
public:
    FileCalls() = default;
    FileCalls(FileCalls const&) = delete;
    FileCalls& operator=(FileCalls const&) = delete;
    virtual ~FileCalls() = default;

    /// @brief Creates a file without a name, for reading and writing, past the page cache if
    /// `is_direct`. Returns its descriptor.
    ///
    /// Where the file system has only files with names (no O_TMPFILE), the name is removed at once.
    /// A process that is killed in between leaves an empty file, which the next call for the same
    /// folder removes.
    [[nodiscard]] virtual int create(char const* folder, bool is_direct) = 0;

    /// @brief Returns the alignment of offsets, lengths and addresses: a power of two.
    [[nodiscard]] virtual std::int64_t alignment(int file, bool is_direct) = 0;

    /// @brief Takes the space of the whole file from the file system. Returns 0.
    [[nodiscard]] virtual int allocate(int file, std::uint64_t bytes) = 0;

    /// @brief Returns the number of bytes read, which may be fewer; 0 at the end of the file.
    [[nodiscard]] virtual std::int64_t read(int file, void* to, std::size_t bytes,
                                            std::uint64_t offset) = 0;

    /// @brief Returns the number of bytes written, which may be fewer.
    [[nodiscard]] virtual std::int64_t write(int file, void const* from, std::size_t bytes,
                                             std::uint64_t offset) = 0;

    /// @brief Closes the file, which removes it.
    virtual void close(int file) noexcept = 0;

    /// @brief Returns the calls of this system.
    static FileCalls& system();

    /// @brief Returns the calls of this system, without O_TMPFILE.
    static FileCalls& system_with_names();
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/file_calls.ipp"
#endif
