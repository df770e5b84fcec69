#pragma once

#include "../host_memory_resource.hpp"

#include <cstdint>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace ZERO_NAMESPACE::detail {

/// The whole pages of a block.
struct WholePages {
    void* begin;
    std::size_t bytes;
};

/// @param page size of a page in bytes; 0: that of the system
ZERO_COLD_INLINE WholePages whole_pages_of(void* memory, std::size_t bytes,
                                           std::uintptr_t page = 0) noexcept {
#if defined(__linux__)
    if (page == 0) {
        page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    }
    auto const address = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t const begin = (address + page - 1) / page * page;
    std::uintptr_t const end = (address + bytes) / page * page;
    if (begin < end) {
        return {static_cast<char*>(memory) + (begin - address), end - begin};
    }
#else
    (void)bytes, (void)page;
#endif
    return {memory, 0};
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void* HostMemoryResource::allocate(std::size_t bytes, BufferKind kind) {
    void* memory = ::operator new(bytes, std::align_val_t{alignment});
#if defined(MADV_HUGEPAGE)
    // Loops run through them faster, and requests of files have fewer parts.
    auto const [begin, large_bytes] =
        detail::whole_pages_of(memory, bytes, std::uintptr_t{2} << 20U);
    if (large_bytes != 0) {
        (void)::madvise(begin, large_bytes, MADV_HUGEPAGE); // a hint
    }
#endif
    _allocated[static_cast<std::size_t>(kind)] += bytes;
    return memory;
}

ZERO_COLD_INLINE void HostMemoryResource::deallocate(void* memory, std::size_t bytes,
                                                     BufferKind kind) noexcept {
    ::operator delete(memory, std::align_val_t{alignment});
    _allocated[static_cast<std::size_t>(kind)] -= bytes;
}

ZERO_COLD_INLINE std::size_t HostMemoryResource::allocated_bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& bytes : _allocated) {
        sum += bytes;
    }
    return sum;
}

ZERO_COLD_INLINE bool HostMemoryResource::can_give_back_pages() const noexcept {
#if defined(__linux__)
    return true;
#else
    return false;
#endif
}

ZERO_COLD_INLINE bool HostMemoryResource::give_back_pages(void* memory, std::size_t bytes,
                                                          BufferKind kind) noexcept {
    detail::WholePages const pages = detail::whole_pages_of(memory, bytes);
#if defined(__linux__)
    if (pages.bytes != 0) {
        // first what can be undone: the values are lost with the second call only
        if (::mprotect(pages.begin, pages.bytes, PROT_NONE) != 0) {
            return false;
        }
        if (::madvise(pages.begin, pages.bytes, MADV_DONTNEED) != 0) { // locked memory
            (void)::mprotect(pages.begin, pages.bytes, PROT_READ | PROT_WRITE);
            return false;
        }
    }
#endif
    _given_back[static_cast<std::size_t>(kind)] += pages.bytes;
    return can_give_back_pages();
}

ZERO_COLD_INLINE void HostMemoryResource::take_pages_again(void* memory, std::size_t bytes,
                                                           BufferKind kind) {
    detail::WholePages const pages = detail::whole_pages_of(memory, bytes);
#if defined(__linux__)
    if (pages.bytes != 0 && ::mprotect(pages.begin, pages.bytes, PROT_READ | PROT_WRITE) != 0) {
        throw std::bad_alloc();
    }
#endif
    _given_back[static_cast<std::size_t>(kind)] -= pages.bytes;
}

} // namespace ZERO_NAMESPACE
