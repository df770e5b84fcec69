#pragma once

#include "shared_memory.hpp"

#include "../../core/detail/text.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>

#if defined(__linux__)
#include <climits>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ZERO_NAMESPACE::detail {

/// Returns whether a collective may send blocks of this kind. Peers need not read the others, which
/// may then lie in large pages.
constexpr bool is_read_by_peers(BufferKind kind) noexcept {
    switch (kind) {
    case BufferKind::parameters:
    case BufferKind::gradients:
    case BufferKind::gradient_leases:
    case BufferKind::parameter_leases:
    case BufferKind::wire:
    case BufferKind::communicator:
    case BufferKind::secondary_copies:
    case BufferKind::weight_codes: return true;
    default: return false;
    }
}

ZERO_COLD_INLINE void SharedMemory::refuse(char const* what, int error) {
    _reason =
        text({"the system refuses ", what, " (", std::generic_category().message(error), ')'});
}

#if defined(__linux__)

ZERO_COLD_INLINE SharedMemory::SharedMemory(std::size_t ranks)
    : _bases(ranks), _mapped_bytes(ranks) {
    constexpr std::size_t most = std::size_t{1} << 45U; // of the 2^47 bytes of addresses
    _page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::size_t const all = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * _page;
    std::size_t const bytes = smaller(all, most / ranks / _page * _page);
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
        refuse("a file of that size", EFBIG); // it would end the process
        return;
    }
    std::int64_t key = 0;
    int const file =
        ::getrandom(&key, sizeof(key), 0) == sizeof(key) ? ::memfd_create("zero", MFD_CLOEXEC) : -1;
    if (file < 0) {
        refuse("a file in memory", errno);
        return;
    }
    void* const memory =
        ::ftruncate(file, static_cast<off_t>(bytes)) != 0
            ? MAP_FAILED
            : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) {
        refuse("addresses for a file in memory", errno);
        ::close(file);
        return;
    }
    std::memcpy(memory, &key, sizeof(key));
    _memory = static_cast<std::byte*>(memory);
    _own = {::getpid(), file, static_cast<std::int64_t>(bytes), key};
}

ZERO_COLD_INLINE SharedMemory::~SharedMemory() {
    close_file();
    for (std::size_t rank = 0; rank < _bases.size(); ++rank) {
        if (_bases[rank] != nullptr && _bases[rank] != _memory) {
            ::munmap(const_cast<std::byte*>(_bases[rank]), _mapped_bytes[rank]);
        }
    }
    if (_memory != nullptr) {
        ::munmap(_memory, static_cast<std::size_t>(_own.bytes));
    }
}

ZERO_COLD_INLINE void SharedMemory::close_file() noexcept {
    if (_own.file >= 0) {
        ::close(static_cast<int>(_own.file));
        _own.file = -1;
    }
}

ZERO_COLD_INLINE void SharedMemory::map(std::size_t rank, Introduction const& peer) noexcept {
    if (_bases[rank] != nullptr || _memory == nullptr || peer.file < 0) {
        return;
    }
    if (peer.key == _own.key) {
        _bases[rank] = _memory;
        return;
    }
    // On another host, or if the peer sees other numbers of processes, this is another file. Only
    // one of our own may be opened: to open a pipe could block.
    std::array<char, 64> path{};
    std::array<char, 64> target{};
    (void)std::snprintf(path.data(), path.size(), "/proc/%lld/fd/%lld",
                        static_cast<long long>(peer.process), static_cast<long long>(peer.file));
    constexpr std::string_view expected = "/memfd:zero ";
    int const file = ::readlink(path.data(), target.data(), target.size() - 1) > 0
                             && std::string_view(target.data()).starts_with(expected)
                         ? ::open(path.data(), O_RDONLY | O_CLOEXEC)
                         : -1;
    if (file < 0) {
        return;
    }
    auto const bytes = static_cast<std::size_t>(peer.bytes);
    struct stat found {};
    void* const memory =
        ::fstat(file, &found) != 0 || found.st_size != peer.bytes
            ? MAP_FAILED
            : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    ::close(file);
    if (memory != MAP_FAILED && std::memcmp(memory, &peer.key, sizeof(peer.key)) == 0) {
        (void)::madvise(memory, bytes, MADV_DONTDUMP); // the peer dumps it
        _bases[rank] = static_cast<std::byte const*>(memory);
        _mapped_bytes[rank] = bytes;
    } else if (memory != MAP_FAILED) {
        ::munmap(memory, bytes);
    }
}

/// Returns the memory of whole pages to the system. Peers that read them get zeros.
ZERO_COLD_INLINE bool SharedMemory::drop(void* memory, std::size_t bytes) const noexcept {
    return ::madvise(memory, whole_pages(bytes), MADV_REMOVE) == 0;
}

ZERO_COLD_INLINE bool SharedMemory::set_usable(void* memory, std::size_t bytes,
                                               bool is_usable) const noexcept {
    return ::mprotect(memory, whole_pages(bytes), is_usable ? PROT_READ | PROT_WRITE : PROT_NONE)
           == 0;
}

/// The half of a word that differs in the calls of a group, as the kernel compares it.
ZERO_INLINE long futex(std::uint64_t const& word, int operation, std::uint64_t value,
                       timespec const* most) noexcept {
    static_assert(std::endian::native == std::endian::little);
    return ::syscall(SYS_futex, &word, operation, static_cast<std::uint32_t>(value), most, nullptr,
                     0);
}

ZERO_INLINE void sleep_until_written(std::uint64_t const& word, std::uint64_t awaited) noexcept {
    std::uint64_t const now =
        std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
    timespec const most{0, 500'000};
    if (now != awaited) {
        (void)futex(word, FUTEX_WAIT, now, &most);
    }
}

ZERO_INLINE void wake_readers(std::uint64_t const& word) noexcept {
    (void)futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

#else

ZERO_INLINE void sleep_until_written(std::uint64_t const&, std::uint64_t) noexcept {}
ZERO_INLINE void wake_readers(std::uint64_t const&) noexcept {}
ZERO_COLD_INLINE SharedMemory::SharedMemory(std::size_t ranks) : _bases(ranks) {
    refuse("a file in memory", ENOSYS);
}
ZERO_COLD_INLINE SharedMemory::~SharedMemory() = default;
ZERO_COLD_INLINE void SharedMemory::close_file() noexcept {}
ZERO_COLD_INLINE void SharedMemory::map(std::size_t, Introduction const&) noexcept {}
ZERO_COLD_INLINE bool SharedMemory::drop(void*, std::size_t) const noexcept {
    return false;
}
ZERO_COLD_INLINE bool SharedMemory::set_usable(void*, std::size_t, bool) const noexcept {
    return false;
}

#endif

ZERO_COLD_INLINE std::size_t SharedMemory::offset_of(void const* memory,
                                                     std::size_t bytes) const noexcept {
    auto const begin = reinterpret_cast<std::uintptr_t>(_memory);
    auto const at = reinterpret_cast<std::uintptr_t>(memory);
    auto const size = static_cast<std::size_t>(_own.bytes);
    return _memory != nullptr && at >= begin && at - begin < size && bytes <= size - (at - begin)
               ? at - begin
               : nowhere;
}

/// Takes the first gap that is large enough. O(blocks): an engine has some tens.
ZERO_COLD_INLINE void* SharedMemory::allocate(std::size_t bytes, BufferKind kind) {
    if (_memory != nullptr && is_read_by_peers(kind)) {
        std::lock_guard const lock(_mutex);
        std::size_t const wanted = whole_pages(bytes);
        std::size_t begin = _page; // the first one holds the key
        auto next = _blocks.begin();
        while (next != _blocks.end() && next->begin - begin < wanted) {
            begin = next++->end;
        }
        if (wanted <= static_cast<std::size_t>(_own.bytes) - begin) {
            _blocks.insert(next, {begin, begin + wanted});
            return _memory + begin;
        }
    }
    return _heap.allocate(bytes, kind);
}

ZERO_COLD_INLINE void SharedMemory::deallocate(void* memory, std::size_t bytes,
                                               BufferKind kind) noexcept {
    std::size_t const begin = offset_of(memory, bytes);
    if (begin == nowhere) {
        _heap.deallocate(memory, bytes, kind);
        return;
    }
    std::lock_guard const lock(_mutex);
    (void)set_usable(memory, bytes, true); // it may have been given back
    (void)drop(memory, bytes);
    std::erase_if(_blocks, [&](Block const& block) { return block.begin == begin; });
}

ZERO_COLD_INLINE bool SharedMemory::give_back_pages(void* memory, std::size_t bytes,
                                                    BufferKind kind) noexcept {
    if (offset_of(memory, bytes) == nowhere) {
        return _heap.give_back_pages(memory, bytes, kind);
    }
    bool const is_dropped = drop(memory, bytes);
    (void)(is_dropped && set_usable(memory, bytes, false)); // so that an access is noticed
    return is_dropped;
}

ZERO_COLD_INLINE void SharedMemory::take_pages_again(void* memory, std::size_t bytes,
                                                     BufferKind kind) {
    if (offset_of(memory, bytes) == nowhere) {
        _heap.take_pages_again(memory, bytes, kind);
    } else if (!set_usable(memory, bytes, true)) {
        throw std::bad_alloc();
    }
}

} // namespace ZERO_NAMESPACE::detail
