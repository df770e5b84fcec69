#pragma once

// Replaces the global operators new and delete by ones that count allocations and bytes. Include it
// in exactly one translation unit of a program, for instance in an *_alone_test.cpp, which is a
// program of its own.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace zero::test {

inline std::atomic<bool> is_counting{false};
inline std::atomic<long> allocations{0}; ///< calls on all threads while `is_counting`

/// The number of calls on all threads after which memory runs out and stays so; negative: never.
inline std::atomic<long> allocations_left{-1};

inline std::atomic<long long> live_bytes{0}; ///< bytes not yet freed; always counted
inline std::atomic<long long> peak_bytes{0}; ///< the largest `live_bytes`; set it to start anew

inline void* allocate_counted(std::size_t bytes, std::size_t alignment) noexcept {
    if (is_counting.load()) {
        ++allocations;
    }
    long left = allocations_left.load();
    while (left > 0 && !allocations_left.compare_exchange_weak(left, left - 1)) {}
    if (left == 0) {
        return nullptr;
    }
    std::size_t const wanted = bytes == 0 ? 1 : bytes;
    void* const memory =
        alignment == 0
            ? std::malloc(wanted)
            : std::aligned_alloc(alignment, (wanted + alignment - 1) / alignment * alignment);
    auto const size = static_cast<long long>(::malloc_usable_size(memory));
    long long const live = live_bytes.fetch_add(size) + size;
    long long peak = peak_bytes.load();
    while (peak < live && !peak_bytes.compare_exchange_weak(peak, live)) {}
    return memory;
}

inline void free_counted(void* memory) noexcept {
    live_bytes -= static_cast<long long>(::malloc_usable_size(memory));
    std::free(memory);
}

inline void* allocate_counted_or_throw(std::size_t bytes, std::size_t alignment) {
    void* const memory = allocate_counted(bytes, alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace zero::test

void* operator new(std::size_t bytes) {
    return zero::test::allocate_counted_or_throw(bytes, 0);
}
void* operator new[](std::size_t bytes) {
    return zero::test::allocate_counted_or_throw(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return zero::test::allocate_counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return zero::test::allocate_counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
    return zero::test::allocate_counted(bytes, 0);
}
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept {
    return zero::test::allocate_counted(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
    return zero::test::allocate_counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     std::nothrow_t const&) noexcept {
    return zero::test::allocate_counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory) noexcept {
    zero::test::free_counted(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    zero::test::free_counted(memory);
}
void operator delete(void* memory, std::nothrow_t const&) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory, std::nothrow_t const&) noexcept {
    zero::test::free_counted(memory);
}
void operator delete(void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
    zero::test::free_counted(memory);
}
void operator delete[](void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
    zero::test::free_counted(memory);
}
