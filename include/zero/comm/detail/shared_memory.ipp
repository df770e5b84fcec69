#pragma once

#include "shared_memory.hpp"

#include "../../core/detail/text.hpp"
#include "../../host/detail/copy_loop.hpp"
#include "../collective_tag.hpp"
#include "../traffic_count.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <climits>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
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

ZERO_INLINE void SharedGroup::sleep(std::size_t rank, Meeting meeting) const noexcept {
    std::uint64_t const& word = shown(rank).reached[static_cast<std::size_t>(meeting)];
    std::uint64_t const now = word_of(rank, meeting);
    timespec const most{0, 500'000};
    if (now != _word) {
        (void)futex(word, FUTEX_WAIT, now, &most);
    }
}

ZERO_INLINE void SharedGroup::come(Meeting meeting) noexcept {
    std::uint64_t& word = (*_slot)[_number % 2].reached[static_cast<std::size_t>(meeting)];
    std::atomic_ref(word).store(_word, std::memory_order_release);
    (void)futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

/// A process that has ended and that no other has waited for still has its number, so a handle of
/// it is asked.
ZERO_COLD_INLINE bool has_ended(std::int64_t process) noexcept {
    auto const handle =
        static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0U));
    if (handle < 0) {
        return errno == ESRCH;
    }
    pollfd asked{handle, POLLIN, 0};
    bool const is_over = ::poll(&asked, 1, 0) > 0;
    ::close(handle);
    return is_over;
}

#else

ZERO_INLINE void SharedGroup::sleep(std::size_t, Meeting) const noexcept {}
ZERO_INLINE void SharedGroup::come(Meeting) noexcept {}
ZERO_COLD_INLINE bool has_ended(std::int64_t) noexcept {
    return false;
}
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
    std::erase_if(_blocks, [&](Range const& block) { return block.begin == begin; });
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

// How a group reads in place.

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void SharedGroup::join(GroupPlace const& place, std::string_view refusal,
                                        Send send) {
    struct Shown {
        SharedMemory::Introduction memory;
        std::int64_t place;
        std::int64_t slot;
    };
    _rank = place.rank;
    _reason = place.world == 1 ? "it is the only rank" : refusal;
    if (!_reason.empty()) {
        return;
    }
    bool const is_first = _memory == nullptr;
    if (is_first) {
        _memory = std::make_shared<SharedMemory>(place.world);
        _place = place.rank;
    }
    _reason = _memory->reason();
    auto* const slot =
        ::new (_memory->allocate(sizeof(SharedSlot), BufferKind::communicator)) SharedSlot{};
    List<Shown> shown(place.world);
    shown[place.rank] = {_memory->introduction(), static_cast<std::int64_t>(_place),
                         static_cast<std::int64_t>(_memory->offset_of(slot, sizeof(SharedSlot)))};
    std::vector<std::size_t> const cuts = uniform_cuts(place.world, sizeof(Shown));
    CollectiveTag const tag{"memory of a host", 0};
    send(place.all_gather(DType::bytes, &shown[place.rank], shown.data(), cuts, tag),
         {&shown[place.rank], shown.data(), 1, cuts, {}});
    _peers = List<Peer>(place.world);
    _pieces = List<void const*>(place.world);
    for (std::size_t rank = 0; rank < place.world; ++rank) {
        auto const at = static_cast<std::size_t>(shown[rank].place);
        _memory->map(at, shown[rank].memory);
        std::byte const* const base = _memory->base(at);
        if (base != nullptr && shown[rank].slot >= 0) {
            _peers[rank] = {base, reinterpret_cast<SharedSlot const*>(base + shown[rank].slot),
                            shown[rank].memory.process};
        } else if (_reason.empty()) {
            _reason = shown[rank].slot < 0
                          ? text({"the system refuses rank ", rank, " such memory"})
                          : text({"rank ", rank, " is on another host, or rank ", place.rank,
                                  " may not open its memory"});
        }
    }
    std::int64_t can_read = _reason.empty() ? 1 : 0;
    send(place.integers(&can_read, 1, IntegerReduction::min, tag),
         {&can_read, &can_read, sizeof(can_read), {}, {}});
    if (is_first) {
        _memory->close_file();
    }
    _slot = slot; // not before: until here the group sends messages
    if (can_read == 0) {
        _reason = _reason.empty() ? "another rank may not open the memory of all ranks" : _reason;
        leave();
    }
}

ZERO_COLD_INLINE void SharedGroup::leave() noexcept {
    if (_slot != nullptr) {
        _memory->deallocate(std::exchange(_slot, nullptr), sizeof(SharedSlot),
                            BufferKind::communicator);
    }
}

/// Shows the call, and where the memory that the peers read lies.
ZERO_INLINE void SharedGroup::show(Flight const& flight) noexcept {
    std::uint64_t const hash = CallSignature::hash_of(flight.signature, ++_number);
    _word = _number << 32U | (hash & 0xffffffffU);
    SharedCall& own = (*_slot)[_number % 2];
    own.signature = flight.signature;
    own.send = 0;
    own.receive = 0;
    switch (flight.kind) {
    case CollectiveKind::all_reduce:
        own.receive = offset_of(flight, flight.receive, flight.count);
        [[fallthrough]];
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::exchange: own.send = offset_of(flight, flight.send, flight.count); break;
    case CollectiveKind::all_gather:
        own.send = offset_of(flight, flight.send, flight.cuts[_rank + 1] - flight.cuts[_rank]);
        break;
    case CollectiveKind::broadcast:
        own.send = _rank == flight.detail ? offset_of(flight, flight.send, flight.count) : 0;
        break;
    case CollectiveKind::integers: own.send = SharedMemory::nowhere; break; // few: they are sent
    }
}

ZERO_INLINE bool SharedGroup::run(Flight const& flight, FunctionRef<Meeting> meet) {
    show(flight);
    meet(Meeting::called);
    std::size_t const world = _peers.size();
    for (std::size_t rank = 0; rank < world; ++rank) {
        if (shown(rank).send == SharedMemory::nowhere
            || shown(rank).receive == SharedMemory::nowhere) {
            return false;
        }
    }
    auto* const receive = static_cast<std::byte*>(flight.receive);
    std::size_t const all = flight.count * flight.element_bytes;
    Extents const extents(flight, 1);
    auto const sent = [&](std::size_t rank) { return _peers[rank].base + shown(rank).send; };
    auto const copy = [&](std::byte* to, std::byte const* from, std::size_t bytes) {
        if (bytes != 0 && to != from) {
            host::detail::copy(to, from, bytes, 2 * all);
        }
    };
    auto const add = [&](void* out) {
        Part const own = extents.whole(_rank);
        for (std::size_t rank = 0; rank < world; ++rank) {
            _pieces[rank] = sent(rank) + own.offset;
        }
        if (own.bytes != 0) {
            flight.sum.add(out, flight.sum.held, 0, _pieces.data(), static_cast<int>(world),
                           own.bytes / flight.element_bytes);
        }
    };
    switch (flight.kind) {
    case CollectiveKind::reduce_scatter: add(receive); break;
    case CollectiveKind::all_reduce:
        add(receive + extents.whole(_rank).offset);
        meet(Meeting::reduced);
        for (std::size_t rank = 0; rank < world; ++rank) {
            Part const part = extents.whole(rank);
            if (rank != _rank) {
                copy(receive + part.offset, _peers[rank].base + shown(rank).receive + part.offset,
                     part.bytes);
            }
        }
        break;
    case CollectiveKind::all_gather:
        for (std::size_t rank = 0; rank < world; ++rank) {
            Part const part = extents.whole(rank);
            copy(receive + part.offset, sent(rank), part.bytes);
        }
        break;
    case CollectiveKind::exchange:
        for (std::size_t rank = 0; rank < world; ++rank) {
            Part const own = extents.whole(_rank);
            copy(receive + rank * own.bytes, sent(rank) + own.offset, own.bytes);
        }
        break;
    case CollectiveKind::broadcast:
        if (_rank != flight.detail) {
            copy(receive, sent(flight.detail), all);
        }
        break;
    case CollectiveKind::integers: break;
    }
    meet(Meeting::done); // from now on no peer reads the memory of this rank
    return true;
}

/// Returns a rank that is not yet in its call of the same number; the number of ranks if there is
/// none.
ZERO_INLINE std::size_t SharedGroup::missing(Meeting meeting) const noexcept {
    std::size_t rank = 0;
    while (rank < _peers.size() && (word_of(rank, meeting) ^ _word) >> 32U == 0) {
        ++rank;
    }
    return rank;
}

ZERO_INLINE bool SharedGroup::wait(Meeting meeting, std::chrono::nanoseconds most) const noexcept {
    using Clock = std::chrono::steady_clock;
    constexpr unsigned turns_at_once = 100; // without the clock
    Clock::time_point until{};
    for (unsigned turn = 0;; ++turn) {
        std::size_t const rank = missing(meeting);
        if (rank == _peers.size()) {
            return true;
        }
        if (turn < turns_at_once) {
            continue;
        }
        auto const now = Clock::now();
        until = turn == turns_at_once ? now + most : until;
        if (now >= until) {
            return false;
        }
        sleep(rank, meeting);
    }
}

ZERO_INLINE std::string SharedGroup::difference() const {
    std::size_t rank = 0;
    while (rank < _peers.size() && has_come(rank, Meeting::called)) {
        ++rank;
    }
    if (rank == _peers.size()) {
        return {};
    }
    List<std::uint64_t> signatures(_peers.size() * CallSignature::words);
    for (rank = 0; rank < _peers.size(); ++rank) {
        std::memcpy(signatures.data() + rank * CallSignature::words, shown(rank).signature.data(),
                    sizeof(CallSignature::Words));
    }
    return CallSignature::first_difference(as_span(signatures));
}

ZERO_COLD_INLINE std::size_t SharedGroup::ended(Meeting meeting) const noexcept {
    std::size_t rank = 0;
    while (rank < _peers.size() && (has_come(rank, meeting) || !has_ended(_peers[rank].process))) {
        ++rank;
    }
    return rank;
}

} // namespace ZERO_NAMESPACE::detail
