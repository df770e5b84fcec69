#pragma once

#include <zero/core/host_memory_resource.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/// Plain loops that move the same bytes as a kernel with almost no arithmetic: the upper bound that
/// memory allows. They use 16-byte vectors, which every x86-64 and AArch64 compiler supports
/// without a flag, so they do not depend on the optimiser.
///
/// Benchmarks are named operation/case/who/elements. The one whose "who" is "twin" is the reference
/// for the others of the same operation, case, size and number of threads; scripts/bench_table.py
/// pairs them.
namespace bench {

using Word4 = std::uint32_t __attribute__((vector_size(16)));
using Half4 = std::uint16_t __attribute__((vector_size(8)));

/// An array in the memory that engines take, so that a twin has the same pages.
template <class T>
class Array {
public:
    explicit Array(std::size_t n, T value = T{})
        : _data(static_cast<T*>(_memory.allocate(n * sizeof(T), zero::BufferKind::gradients))),
          _n(n) {
        std::uninitialized_fill_n(_data, n, value);
    }
    Array(Array const&) = delete;
    Array& operator=(Array const&) = delete;
    ~Array() { _memory.deallocate(_data, _n * sizeof(T), zero::BufferKind::gradients); }

    T* data() const { return _data; }
    std::size_t size() const { return _n; }
    T& operator[](std::size_t i) const { return _data[i]; }

private:
    zero::HostMemoryResource _memory;
    T* _data;
    std::size_t _n;
};

inline Word4 load(void const* from) {
    Word4 word;
    __builtin_memcpy(&word, from, sizeof word);
    return word;
}

inline void store(void* to, Word4 word) {
    __builtin_memcpy(to, &word, sizeof word);
}

/// Stores without the caches where that needs no flag, so memory is not read before it is written.
/// `to` is a multiple of 16 bytes.
inline void stream(void* to, Word4 word) {
#ifdef __SSE2__
    __m128i value;
    __builtin_memcpy(&value, &word, sizeof value);
    _mm_stream_si128(static_cast<__m128i*>(to), value);
#else
    store(to, word);
#endif
}

template <bool streams>
void put(void* to, Word4 word) {
    if constexpr (streams) {
        stream(to, word);
    } else {
        store(to, word);
    }
}

/// Lets the process keep freed memory. Otherwise each repetition touches gigabytes for the first
/// time, which takes longer than the measurement.
inline bool keep_memory() {
#ifdef __GLIBC__
    return mallopt(M_MMAP_MAX, 0) != 0 && mallopt(M_TRIM_THRESHOLD, -1) != 0
           && mallopt(M_ARENA_MAX, 1) != 0;
#else
    return false;
#endif
}

/// Calls `body.operator()<streams>()`, where `streams` is true if the results would not stay in the
/// caches.
template <class Body>
void with_stores(std::size_t moved_bytes, Body const& body) {
    if (moved_bytes >= std::size_t{32} << 20U) {
        body.template operator()<true>();
    } else {
        body.template operator()<false>();
    }
}

/// Prefetches a line far after an address that is read, as the library does, so that a
/// prefetch cannot make the library faster than the twin.
inline void prefetch_after(void const* from) {
    __builtin_prefetch(
        reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(from) + 2048));
}

/// Stores one word, as large as the words that were read, or two if `wide` is 2. If `is_added`, it
/// first reads the memory that it overwrites.
template <bool streams, bool is_added, std::size_t wide>
void put_sum(char* to, Word4 word) {
    put<streams>(to, is_added ? word ^ load(to) : word);
    if constexpr (wide == 2) {
        put<streams>(to + 16, is_added ? word ^ load(to + 16) : word);
    }
}

/// Reads the elements [begin, begin + n) of all ranks and writes n elements to `out`, or reads and
/// writes them if `is_added`. The elements of `out` are as large as those of the ranks, or twice as
/// large. n is a multiple of 64 bytes of the ranks' elements.
template <bool is_added = false, class Out, class T>
void move_sum(Out* out, T const* const* from, std::size_t world, std::size_t begin, std::size_t n) {
    constexpr std::size_t wide = sizeof(Out) / sizeof(T);
    bool const is_apart = !is_added && static_cast<void const*>(out) != from[0] + begin;
    with_stores(is_apart ? n * (world * sizeof(T) + sizeof(Out)) : 0, [&]<bool streams>() {
        for (std::size_t byte = 0; byte < n * sizeof(T); byte += 64) {
            auto const* line = reinterpret_cast<char const*>(from[0] + begin) + byte;
            prefetch_after(line);
            Word4 first = load(line);
            Word4 second = load(line + 16);
            Word4 third = load(line + 32);
            Word4 fourth = load(line + 48);
            for (std::size_t rank = 1; rank < world; ++rank) {
                line = reinterpret_cast<char const*>(from[rank] + begin) + byte;
                prefetch_after(line);
                first ^= load(line);
                second ^= load(line + 16);
                third ^= load(line + 32);
                fourth ^= load(line + 48);
            }
            char* const to = reinterpret_cast<char*>(out) + wide * byte;
            if constexpr (is_added) {
                prefetch_after(to);
                prefetch_after(to + 64 * (wide - 1));
            }
            put_sum<streams, is_added, wide>(to, first);
            put_sum<streams, is_added, wide>(to + 16 * wide, second);
            put_sum<streams, is_added, wide>(to + 32 * wide, third);
            put_sum<streams, is_added, wide>(to + 48 * wide, fourth);
        }
    });
}

/// Reads gradient, master weight and states; writes master weight, states and, unless it is null, a
/// 16-bit parameter. n is a multiple of 16.
template <std::size_t states>
void move_update(float const* gradient, float* master, std::array<float*, states> const& state,
                 void* parameter, std::size_t n) {
    std::size_t const moved = (12 + 8 * states + (parameter == nullptr ? 0 : 2)) * n;
    with_stores(moved, [&]<bool streams>() {
        for (std::size_t i = 0; i < n; i += 16) {
            prefetch_after(gradient + i);
            prefetch_after(master + i);
            for (float* const one : state) {
                prefetch_after(one + i);
            }
            for (std::size_t j = i; j < i + 16; j += 4) {
                auto const word = load(gradient + j);
                store(master + j, load(master + j) ^ word);
                for (float* const one : state) {
                    store(one + j, load(one + j) ^ word);
                }
            }
            if (parameter != nullptr) {
                auto* const to = static_cast<std::uint16_t*>(parameter) + i;
                put<streams>(to, load(master + i) ^ load(master + i + 4));
                put<streams>(to + 8, load(master + i + 8) ^ load(master + i + 12));
            }
        }
    });
}

/// Reads n floats, a multiple of 16.
inline void move_read(float const* values, std::size_t n) {
    Word4 first = {};
    Word4 second = {};
    for (std::size_t i = 0; i < n; i += 16) {
        prefetch_after(values + i);
        first += load(values + i);
        second += load(values + i + 4);
        first += load(values + i + 8);
        second += load(values + i + 12);
    }
    benchmark::DoNotOptimize(first);
    benchmark::DoNotOptimize(second);
}

/// Copies `bytes` bytes, a multiple of 64. Bypasses the caches if the data would not stay there.
inline void move_copy(void* out, void const* in, std::size_t bytes) {
    with_stores(4 * bytes, [&]<bool streams>() {
        for (std::size_t byte = 0; byte < bytes; byte += 64) {
            auto const* const from = static_cast<char const*>(in) + byte;
            char* const to = static_cast<char*>(out) + byte;
            prefetch_after(from);
            put<streams>(to, load(from));
            put<streams>(to + 16, load(from + 16));
            put<streams>(to + 32, load(from + 32));
            put<streams>(to + 48, load(from + 48));
        }
    });
}

/// Reads `in_bytes` of each rank and writes `out_bytes`, as a codec does: both in equal steps up to
/// their ends, of which less than 64 bytes are left out. Both are multiples of 8, and `out` of 16.
template <bool streams>
void move_codes(void* out, std::size_t out_bytes, void const* const* from, std::size_t world,
                std::size_t in_bytes) {
    std::size_t const lines = in_bytes / 64;
    auto* to = static_cast<char*>(out);
    std::size_t owed = 0;
    for (std::size_t line = 0; line < lines; ++line) {
        Word4 even = {};
        Word4 odd = {};
        for (std::size_t rank = 0; rank < world; ++rank) {
            char const* const at = static_cast<char const*>(from[rank]) + 64 * line;
            prefetch_after(at);
            even ^= load(at) ^ load(at + 32);
            odd ^= load(at + 16) ^ load(at + 48);
        }
        for (owed += out_bytes / 16; owed >= lines; owed -= lines, to += 16) {
            put<streams>(to, even);
            even ^= odd;
        }
    }
}

/// Reads and writes `bytes` bytes, a multiple of 16, where they are.
inline void move_in_place(void* values, std::size_t bytes) {
    for (std::size_t byte = 0; byte < bytes; byte += 16) {
        char* const at = static_cast<char*>(values) + byte;
        prefetch_after(at);
        store(at, load(at) ^ Word4{1, 1, 1, 1});
    }
}

/// Parameters of GPT-2 124M.
inline constexpr std::size_t gpt2_elements = 124'439'808;

/// Sizes from the capacity of a cache to the model. Multiples of 64 for up to 64 threads.
inline void sizes(benchmark::internal::Benchmark* benchmark) {
    for (std::size_t const elements :
         {std::size_t{1} << 16U, std::size_t{1} << 20U, std::size_t{1} << 23U, gpt2_elements}) {
        benchmark->Arg(static_cast<std::int64_t>(elements));
    }
    benchmark->Unit(benchmark::kMillisecond)->UseRealTime();
}

inline void largest_size(benchmark::internal::Benchmark* benchmark) {
    benchmark->Arg(static_cast<std::int64_t>(gpt2_elements))
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
}

/// Each thread processes its share, like the ranks of a node.
inline void all_cores(benchmark::internal::Benchmark* benchmark) {
    largest_size(benchmark);
    benchmark->Threads(static_cast<int>(std::max(2U, std::thread::hardware_concurrency())));
}

/// Returns this thread's share of the elements, a multiple of 64.
inline std::size_t share(benchmark::State const& state) {
    return static_cast<std::size_t>(state.range(0)) / static_cast<std::size_t>(state.threads()) / 64
           * 64;
}

inline void count_bytes(benchmark::State& state, double bytes_per_iteration) {
    state.SetBytesProcessed(
        static_cast<std::int64_t>(static_cast<double>(state.iterations()) * bytes_per_iteration));
}

} // namespace bench
