#pragma once

#include "../file_tier.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "checksum.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

[[nodiscard]] ZERO_COLD_INLINE std::string reason_of(std::int64_t code) {
    return std::generic_category().message(static_cast<int>(-code));
}

/// Closes a file, unless it was taken.
struct OpenFile {
    FileCalls* calls;
    int file;
    OpenFile(FileCalls* system, int descriptor) noexcept : calls(system), file(descriptor) {}
    OpenFile(OpenFile const&) = delete;
    OpenFile& operator=(OpenFile const&) = delete;
    ~OpenFile() {
        if (file >= 0) {
            calls->close(file);
        }
    }
};

} // namespace detail

ZERO_COLD_INLINE FileTier::FileTier(FileTierOptions const& options,
                                    std::span<std::uint64_t const> chunks, std::string owner,
                                    MemoryResource& memory, char const* prefix)
    : _calls(options.calls != nullptr ? options.calls : &FileCalls::system()),
      _owner(std::move(owner)), _path(options.path.string()), _bytes(chunks.begin(), chunks.end()),
      _states(chunks.size()) {
    std::error_code unknown; // a folder that cannot be looked at is none
    if (options.path.empty() || !std::filesystem::is_directory(options.path, unknown)) {
        detail::throw_error<InvalidArgument>({"zero: ", _owner, ": ", prefix, "path is '", _path,
                                              "', which is not a folder; ",
                                              options.path.empty() ? "set it to one" : "make it",
                                              ", on the disk that shall hold the states."});
    }
    FileCalls& calls = *_calls;
    bool is_direct = true;
    int file = calls.create(_path.c_str(), is_direct);
    if (file == -EINVAL && options.allow_page_cache) {
        is_direct = false;
        file = calls.create(_path.c_str(), is_direct);
    }
    if (file == -EINVAL && is_direct) {
        detail::throw_error<InvalidArgument>(
            {"zero: ", _owner, ": the file system of ", prefix, "path '", _path,
             "' has no direct access (O_DIRECT); name a folder on a disk, or set ", prefix,
             "allow_page_cache, whose memory no plan contains."});
    }
    if (file < 0) {
        detail::throw_error<InvalidArgument>({"zero: ", _owner, ": no file can be made in ", prefix,
                                              "path '", _path, "': ", detail::reason_of(file),
                                              "."});
    }
    detail::OpenFile opened{_calls, file};
    std::int64_t const alignment = calls.alignment(file, is_direct);
    _alignment = static_cast<std::size_t>(alignment);
    _begin.push_back(0);
    for (std::uint64_t const bytes : _bytes) {
        std::uint64_t const rounded = (bytes + _alignment - 1) / _alignment * _alignment;
        _begin.push_back(_begin.back() + rounded);
    }
    if (int const result = size_bytes() == 0 ? 0 : calls.allocate(file, size_bytes());
        result != 0) {
        throw TierError(detail::text({"zero: ", _owner, ": ", prefix, "path '", _path,
                                      "' has no room for a file of ", size_bytes(),
                                      " bytes: ", detail::reason_of(result),
                                      ". Name a folder on a larger disk, or offload less."}),
                        SourceLocation::current(), -result);
    }
    // Room for the requests of an update and for those of the one before, each after a wait.
    // Gathers take what is free; where nothing is, the caller waits.
    std::size_t const most = host::ThreadedQueue::default_capacity;
    std::size_t const pending = detail::smaller(most, 2 * chunks.size() + 16);
    for (std::size_t queue = 0; queue < queues; ++queue) {
        _reads[queue] = std::make_unique<host::WaitingQueue>(pending, memory);
        _writes[queue] = std::make_unique<host::WaitingQueue>(pending, memory);
    }
    if (size_bytes() != 0) { // last: only the destructor gives it back
        void* const begin = ::mmap(nullptr, static_cast<std::size_t>(size_bytes()), PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (begin == MAP_FAILED) {
            int const code = errno;
            throw TierError(detail::text({"zero: ", _owner, ": the system reserves no ",
                                          size_bytes(), " addresses for the states in '", _path,
                                          "': ", detail::reason_of(-code),
                                          ". Raise the limit of addresses (ulimit -v)."}),
                            SourceLocation::current(), code);
        }
        _addresses = static_cast<std::byte*>(begin);
    }
    _file = std::exchange(opened.file, -1);
}

ZERO_COLD_INLINE FileTier::~FileTier() {
    cancel();
    for (std::size_t queue = 0; queue < queues; ++queue) { // runs what is pending
        _reads[queue].reset();
        _writes[queue].reset();
    }
    if (_file >= 0) {
        _calls->close(_file);
    }
    if (_addresses != nullptr) {
        (void)::munmap(_addresses, static_cast<std::size_t>(size_bytes()));
    }
}

ZERO_COLD_INLINE std::size_t FileTier::chunk_at(void const* address) const noexcept {
    auto const* const at = static_cast<std::byte const*>(address);
    std::less<std::byte const*> const precedes;
    if (_addresses == nullptr || precedes(at, _addresses)
        || !precedes(at, _addresses + size_bytes())) {
        return _bytes.size();
    }
    auto const offset = static_cast<std::uint64_t>(at - _addresses);
    return static_cast<std::size_t>(std::upper_bound(_begin.begin(), _begin.end(), offset)
                                    - _begin.begin() - 1);
}

ZERO_COLD_INLINE std::size_t FileTier::command_bytes() const noexcept {
    std::size_t bytes = 0;
    for (std::size_t queue = 0; queue < queues; ++queue) {
        bytes += _reads[queue]->size_bytes() + _writes[queue]->size_bytes();
    }
    return bytes;
}

ZERO_COLD_INLINE host::Event FileTier::read(std::size_t chunk, void* to) {
    auto& queue = *_reads[chunk % queues];
    queue.enqueue([this, chunk, to] { read_now(chunk, static_cast<std::byte*>(to)); });
    return queue.record();
}

ZERO_COLD_INLINE host::Event FileTier::write(std::size_t chunk, void const* from,
                                             bool const* is_left_out) {
    auto& queue = *_writes[chunk % queues];
    queue.enqueue([this, chunk, from, is_left_out] {
        if (is_left_out == nullptr || !*is_left_out) {
            write_now(chunk, static_cast<std::byte const*>(from));
        }
    });
    return queue.record();
}

ZERO_COLD_INLINE void FileTier::rethrow_failure() const {
    for (std::size_t queue = 0; queue < queues; ++queue) {
        _writes[queue]->rethrow_failure();
        _reads[queue]->rethrow_failure();
    }
}

/// Calls `transfer(done, bytes)` until the whole chunk was moved.
template <class Transfer>
void FileTier::transfer_all(std::size_t chunk, char const* what, Transfer const& transfer) const {
    std::size_t const all = staging_bytes(chunk);
    constexpr std::size_t largest = std::size_t{1} << 30U; // the system moves at most 2^31 bytes
    for (std::size_t done = 0; done < all;) {
        if (_is_cancelled) {
            fail(chunk, std::string(what) + " was cancelled, because its engine had failed",
                 ECANCELED);
        }
        std::int64_t const count = transfer(done, detail::smaller(all - done, largest));
        if (count == -EINTR || count == -EAGAIN) {
            continue;
        }
        if (count < 0) {
            fail(chunk, std::string(what) + " failed: " + detail::reason_of(count),
                 static_cast<int>(-count));
        }
        if (count == 0) {
            fail(chunk, std::string(what) + " ended early: the file is shorter than it was made",
                 0);
        }
        // A part that is not aligned cannot be continued where it ends.
        done += static_cast<std::size_t>(count) / _alignment * _alignment;
        if (static_cast<std::size_t>(count) < _alignment) {
            fail(chunk, std::string(what) + " moved less than one block of the disk", 0);
        }
    }
}

ZERO_COLD_INLINE void FileTier::read_now(std::size_t chunk, std::byte* to) {
    State const& state = _states[chunk];
    std::size_t const bytes = data_bytes(chunk);
    if (!state.is_written) {
        for (std::size_t at = 0; at < bytes; ++at) {
            to[at] = std::byte{0};
        }
        return;
    }
    transfer_all(chunk, "reading", [&](std::size_t done, std::size_t count) {
        return _calls->read(_file, to + done, count, _begin[chunk] + done);
    });
    _bytes_read += bytes;
    if (detail::checksum_of({to, bytes}) != state.checksum) {
        fail(chunk,
             "what was read is not what was written (checksum): the disk, its driver or another "
             "program changed it",
             0);
    }
}

ZERO_COLD_INLINE void FileTier::write_now(std::size_t chunk, std::byte const* from) {
    std::size_t const bytes = data_bytes(chunk);
    transfer_all(chunk, "writing", [&](std::size_t done, std::size_t count) {
        return _calls->write(_file, from + done, count, _begin[chunk] + done);
    });
    _states[chunk] = {detail::checksum_of({from, bytes}), true};
    _bytes_written += bytes;
}

ZERO_COLD_INLINE void FileTier::fail(std::size_t chunk, std::string const& what, int code) const {
    std::string const name =
        _describe == nullptr ? detail::text({"chunk ", chunk}) : _describe(_context, chunk);
    throw TierError(detail::text({"zero: ", _owner, ": ", name, ", at byte ", _begin[chunk],
                                  " of its file in '", _path, "': ", what, ". ", _last_sentence}),
                    SourceLocation::current(), code);
}

} // namespace ZERO_NAMESPACE
