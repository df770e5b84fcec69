#pragma once

#include "../../../core/convert.hpp"
#include "../../../core/detail/namespace.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "round_result.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Tells the compiler that a pointer, possibly read from a table, points to global memory.
/// Otherwise it must use generic accesses.
template <class T>
inline __device__ T* global(T* memory) {
    __builtin_assume(__isGlobal(memory));
    return memory;
}

/// @brief Eight stored numbers in registers, loaded and stored in accesses of 16 bytes; bytes in
/// one access of 8.
template <class T>
struct Pack {
    using Word = std::conditional_t<sizeof(T) == 1, uint2, uint4>;
    static constexpr std::size_t words = pack_elements * sizeof(T) / sizeof(Word);
    static_assert(words * sizeof(Word) == pack_elements * sizeof(T),
                  "zero: a pack is whole words.");
    Word word[words];

    /// @param from aligned to 16 bytes, as is `to` of `store`
    static __device__ Pack load(T const* from) {
        Pack pack;
        auto const* const memory = reinterpret_cast<Word const*>(from);
#pragma unroll
        for (std::size_t i = 0; i < words; ++i) {
            pack.word[i] = *global(memory + i);
        }
        return pack;
    }

    __device__ void store(T* to) const {
        auto* const memory = reinterpret_cast<Word*>(to);
#pragma unroll
        for (std::size_t i = 0; i < words; ++i) {
            __stwb(global(memory + i), word[i]); // nvcc 13.0 splits an assignment into words if
                                                 // addresses are computed indirectly
        }
    }

    static __device__ Pack of(T const (&values)[pack_elements]) {
        Pack pack;
#pragma unroll
        for (std::size_t i = 0; i < words; ++i) {
            if constexpr (sizeof(T) == 1) {
                pack.word[i] = {part(values, 0), part(values, 1)};
            } else {
                pack.word[i] = {part(values, 4 * i), part(values, 4 * i + 1),
                                part(values, 4 * i + 2), part(values, 4 * i + 3)};
            }
        }
        return pack;
    }

    __device__ void get(T (&values)[pack_elements]) const {
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            if constexpr (sizeof(T) == 1) {
                unsigned const bits = i < 4 ? word[0].x : word[0].y;
                values[i] =
                    __builtin_bit_cast(T, static_cast<std::uint8_t>(bits >> i % 4 * 8 & 0xffU));
            } else {
                constexpr std::size_t per_part = sizeof(unsigned) / sizeof(T);
                std::size_t const part = i / per_part;
                uint4 const& four = word[part / 4];
                unsigned const bits = part % 4 == 0   ? four.x
                                      : part % 4 == 1 ? four.y
                                      : part % 4 == 2 ? four.z
                                                      : four.w;
                if constexpr (sizeof(T) == sizeof(unsigned)) {
                    values[i] = __builtin_bit_cast(T, bits);
                } else {
                    values[i] = __builtin_bit_cast(
                        T, static_cast<std::uint16_t>(i % 2 == 0 ? bits & 0xffffU : bits >> 16U));
                }
            }
        }
    }

private:
    /// Returns the 32-bit word `index`.
    __device__ static unsigned part(T const (&values)[pack_elements], std::size_t index) {
        if constexpr (sizeof(T) == sizeof(unsigned)) {
            return __builtin_bit_cast(unsigned, values[index]);
        } else if constexpr (sizeof(T) == 1) {
            unsigned bits = 0;
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                bits |= unsigned{__builtin_bit_cast(std::uint8_t, values[4 * index + i])} << 8 * i;
            }
            return bits;
        } else {
            return static_cast<unsigned>(__builtin_bit_cast(std::uint16_t, values[2 * index]))
                   | static_cast<unsigned>(__builtin_bit_cast(std::uint16_t, values[2 * index + 1]))
                         << 16U;
        }
    }
};

/// @brief Returns whether all pointers are aligned to 16 bytes. Null counts as aligned.
template <class... T>
__device__ inline bool are_aligned(T const*... memory) {
    return ((reinterpret_cast<std::uintptr_t>(memory) | ...) % sizeof(uint4)) == 0;
}

/// @brief The distance between the eight numbers that one thread moves. If `whole`, they form a
/// pack. If not, they are moved one by one and are not adjacent, so that the threads of a warp
/// access consecutive numbers.
template <bool whole>
inline constexpr std::size_t stride = whole ? 1 : warp_threads;

/// @brief Reads up to eight numbers, `stride<whole>` apart: all, in accesses of 16 bytes, if
/// `whole`; otherwise the first `count`, and zeros for the others.
template <bool whole, class T>
__device__ inline void load(T const* from, std::size_t count, T (&values)[pack_elements]) {
    if constexpr (whole) {
        Pack<T>::load(from).get(values);
    } else {
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            values[i] = i < count ? *global(from + i * stride<whole>) : T{};
        }
    }
}

/// @brief Writes up to eight numbers, as `load` reads them.
template <bool whole, class T>
__device__ inline void store(T* to, std::size_t count, T const (&values)[pack_elements]) {
    if constexpr (whole) {
        Pack<T>::of(values).store(to);
    } else {
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            if (i < count) {
                *global(to + i * stride<whole>) = values[i];
            }
        }
    }
}

/// @brief Reads up to eight numbers stored as T and converts them to float.
/// @tparam operands they take part in arithmetic, so the bits of NaNs do not matter
template <bool whole, bool operands = false, class T>
__device__ inline void load_floats(T const* from, std::size_t count,
                                   float (&values)[pack_elements]) {
    T stored[pack_elements];
    load<whole>(from, count, stored);
#pragma unroll
    for (std::size_t i = 0; i < pack_elements; ++i) {
        values[i] = operands ? to_operand(stored[i]) : to_float(stored[i]);
    }
}

/// @brief Converts the elements of a pack to operands of arithmetic.
template <class T>
__device__ inline void operands_of(Pack<T> const& pack, float (&values)[pack_elements]) {
    T stored[pack_elements];
    pack.get(stored);
#pragma unroll
    for (std::size_t i = 0; i < pack_elements; ++i) {
        values[i] = to_operand(stored[i]);
    }
}

/// @brief Reads up to eight operands of arithmetic.
template <bool whole, class T>
__device__ inline void load_operands(T const* from, std::size_t count,
                                     float (&values)[pack_elements]) {
    load_floats<whole, true>(from, count, values);
}

/// @brief Rounds up to eight floats to T and writes them.
template <bool whole, class T>
__device__ inline void store_floats(T* to, std::size_t count,
                                    float const (&values)[pack_elements]) {
    T stored[pack_elements];
#pragma unroll
    for (std::size_t i = 0; i < pack_elements; ++i) {
        stored[i] = from_float<T>(values[i]);
    }
    store<whole>(to, count, stored);
}

/// @brief Rounds up to eight results of arithmetic to T, NaNs to the canonical one, and writes
/// them.
template <bool whole, class T>
__device__ inline void store_results(T* to, std::size_t count,
                                     float const (&values)[pack_elements]) {
    T stored[pack_elements];
    round_results(values, stored);
    store<whole>(to, count, stored);
}

/// The main loop of a kernel is between these two markers, so that a test finds it in the PTX:
/// every access there must be to global memory and of 16 bytes.
__device__ inline void begin_main_loop() {
    asm volatile("// zero: main loop begins" ::: "memory");
}
__device__ inline void end_main_loop() {
    asm volatile("// zero: main loop ends" ::: "memory");
}

/// @brief Whether `for_packs` loads the packs of a body ahead: it has `static constexpr bool
/// loads_ahead = true`, `load(index)`, and `add(pack, index)` in place of a call with `whole` true.
template <class Body>
inline constexpr bool loads_ahead = [] {
    if constexpr (requires { Body::loads_ahead; }) {
        return Body::loads_ahead;
    } else {
        return false;
    }
}();

/// @brief Calls `body.template operator()<whole>(index, count)` for all of [0, elements). If
/// `is_aligned`, calls with `whole` true take the packs. Calls with `whole` false take the rest, or
/// everything: up to eight elements from `index` on, `stride<false>` apart.
///
/// All threads of a warp take part in a call with `whole` false, some with a `count` of 0. Its
/// first thread then begins at a multiple of 8, or of 64 if `together`.
/// @param elements number of elements in a chunk, or in a few of them; below 2^31
/// @tparam marked marks the loop over packs, which then accesses nothing but packs
/// @tparam together all threads of the block take part in a turn over packs
template <bool marked = true, bool together = false, class Body>
__device__ inline void for_packs(std::size_t elements, bool is_aligned, Body const& body) {
    using Index = std::conditional_t<together || loads_ahead<Body>, unsigned,
                                     std::size_t>; // such bodies have no register to spare
    constexpr Index unit = together ? round_elements : pack_elements;
    auto const end = static_cast<Index>(elements);
    Index const whole = is_aligned ? end / unit * unit : 0;
    if constexpr (marked) {
        begin_main_loop();
    }
    Index i = threadIdx.x * static_cast<Index>(pack_elements);
    if constexpr (loads_ahead<Body>) { // memory works on the next pack while the body computes
        auto next = decltype(body.load(i)){};
        if (i < whole) {
            next = body.load(i);
        }
        for (; i < whole; i += round_elements) {
            auto const pack = next;
            if (i + round_elements < whole) {
                next = body.load(i + round_elements);
            }
            body.add(pack, i);
        }
    } else {
        for (; i < whole; i += round_elements) {
            body.template operator()<true>(i, pack_elements);
        }
    }
    if constexpr (marked) {
        end_main_loop();
    }
    unsigned const lane = threadIdx.x % warp_threads;
    auto const last = static_cast<unsigned>(elements);
    for (unsigned first = static_cast<unsigned>(whole)
                          + (threadIdx.x - lane) * static_cast<unsigned>(pack_elements);
         first < last; first += static_cast<unsigned>(round_elements)) {
        unsigned const at = first + lane;
        unsigned const rows = at < last ? (last - at + warp_threads - 1) / warp_threads : 0;
        body.template operator()<false>(at, rows < pack_elements ? rows : pack_elements);
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
