#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_codecs.hpp"
#include "../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "round_result.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

using zero::detail::coded_elements;

/// Threads that share a block of codes: each has eight consecutive elements.
inline constexpr unsigned code_threads = coded_elements / pack_elements;
static_assert(chunk_elements % coded_elements == 0 && warp_threads % code_threads == 0);

/// @brief Reads eight consecutive elements from `index` on, and zeros behind the end.
template <class T>
__device__ inline void load_coded(T const* from, std::size_t index, std::size_t elements,
                                  float (&values)[pack_elements]) {
    if (index + pack_elements <= elements && are_aligned(from)) {
        load_floats<true>(from + index, pack_elements, values);
        return;
    }
#pragma unroll
    for (std::size_t i = 0; i < pack_elements; ++i) {
        values[i] = index + i < elements ? to_float(*global(from + index + i)) : 0.0F;
    }
}

/// @brief Rounds eight consecutive elements and writes those before the end.
template <class T>
__device__ inline void store_decoded(T* to, std::size_t index, std::size_t elements,
                                     float const (&values)[pack_elements]) {
    T stored[pack_elements];
    round_results(values, stored);
    if (index + pack_elements <= elements && are_aligned(to)) {
        store<true>(to + index, pack_elements, stored);
        return;
    }
#pragma unroll
    for (std::size_t i = 0; i < pack_elements; ++i) {
        if (index + i < elements) {
            *global(to + index + i) = stored[i];
        }
    }
}

/// @brief Encodes the blocks of a chunk, in eight threads each. All threads of a warp take part in
/// every turn.
template <class C, class T>
__device__ inline void encode_symmetric(T const* from, std::size_t elements, std::uint8_t* codes) {
    unsigned const lane = threadIdx.x % code_threads;
    for (std::size_t round = 0; round < elements; round += round_elements) {
        std::size_t const index = round + threadIdx.x * pack_elements;
        std::size_t const block = index / coded_elements;
        float values[pack_elements];
        load_coded(from, index, elements, values);
        std::uint32_t largest = 0;
#pragma unroll
        for (float const value : values) {
            largest = ops::larger_magnitude_bits(largest, value);
        }
#pragma unroll
        for (unsigned step = 1; step < code_threads; step *= 2) {
            std::uint32_t const other = __shfl_xor_sync(whole_warp, largest, step);
            largest = largest < other ? other : largest;
        }
        float const scale = ops::code_scale(__uint_as_float(largest), C::levels);
        float const inverse = ops::div(1.0F, scale);
        constexpr std::uint32_t mask = C::code_bits == 8 ? 0xffU : 0xfU;
        std::uint32_t bytes[2] = {};
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            auto const code =
                static_cast<std::uint32_t>(ops::nearest_integer(ops::mul(values[i], inverse)));
            bytes[i / 4] |= (largest < 0x7f800000U ? code & mask : 0U) << 8U * (i % 4);
        }
        unsigned writers = code_threads;
        if constexpr (C::code_bits == 4) { // the second half of the elements, in the upper halves
            writers /= 2;
#pragma unroll
            for (std::uint32_t& word : bytes) {
                word |= __shfl_xor_sync(whole_warp, word, code_threads / 2) << 4U;
            }
        }
        if (block * coded_elements < elements) {
            // addresses of codes are even
            auto* const to = reinterpret_cast<std::uint16_t*>(codes + block * C::bytes_per_block);
            if (lane < writers) {
#pragma unroll
                for (std::size_t i = 0; i < 4; ++i) {
                    *global(to + lane * 4 + i) =
                        static_cast<std::uint16_t>(bytes[i / 2] >> 16U * (i % 2) & 0xffffU);
                }
            }
            if (lane == 0) {
                *global(to + C::code_bytes / 2) =
                    static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, scale) >> 16U);
            }
        }
    }
}

/// @brief Decodes the blocks of a chunk, in eight threads each.
template <class C, class T>
__device__ inline void decode_symmetric(std::uint8_t const* codes, std::size_t elements, T* to) {
    unsigned const lane = threadIdx.x % code_threads;
    bool const is_upper = C::code_bits == 4 && lane >= code_threads / 2;
    unsigned const place = is_upper ? lane - code_threads / 2 : lane;
    for (std::size_t index = threadIdx.x * pack_elements; index < elements;
         index += round_elements) {
        auto const* const from = reinterpret_cast<std::uint16_t const*>(
            codes + index / coded_elements * C::bytes_per_block);
        float const scale =
            __uint_as_float(std::uint32_t{*global(from + C::code_bytes / 2)} << 16U);
        float values[pack_elements];
#pragma unroll
        for (std::size_t i = 0; i < 4; ++i) {
            std::uint32_t const pair = *global(from + place * 4 + i);
#pragma unroll
            for (std::size_t half = 0; half < 2; ++half) {
                std::uint32_t const byte = pair << (half == 0 ? 24U : 16U); // in the upper byte
                std::uint32_t const code = C::code_bits == 8 || is_upper ? byte : byte << 4U;
                auto const number =
                    static_cast<std::int32_t>(code) >> (C::code_bits == 8 ? 24U : 28U);
                values[2 * i + half] = ops::mul(static_cast<float>(number), scale);
            }
        }
        store_decoded(to, index, elements, values);
    }
}

/// @brief Encodes a chunk of a table in each block of threads; a codec that the library does not
/// know, in one thread for each block of codes.
template <class C, class T>
ZERO_KERNEL void __launch_bounds__(block_threads)
    encode_kernel(TableRange<CopySlice<T>> table, std::uint8_t* codes) {
    Chunk const chunk = table.chunks[blockIdx.x];
    CopySlice<T> const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    std::size_t const elements = elements_in(chunk, slice);
    T const* const from = slice.tensor + begin;
    std::uint8_t* const to =
        codes + (slice.bucket_begin + begin) / coded_elements * C::bytes_per_block;
    if constexpr (zero::detail::is_symmetric<C>) {
        encode_symmetric<C>(from, elements, to);
    } else {
        for (std::size_t block = threadIdx.x; block * coded_elements < elements;
             block += block_threads) {
            float values[coded_elements];
            for (std::size_t i = 0; i < coded_elements; ++i) {
                std::size_t const index = block * coded_elements + i;
                values[i] = index < elements ? to_float(from[index]) : 0.0F;
            }
            C::encode(values, to + block * C::bytes_per_block);
        }
    }
}

/// @brief The reverse. Slices without a tensor are in `bucket`.
template <class C, class T>
ZERO_KERNEL void __launch_bounds__(block_threads)
    decode_kernel(TableRange<CopySlice<T>> table, std::uint8_t const* codes, T* bucket) {
    Chunk const chunk = table.chunks[blockIdx.x];
    CopySlice<T> const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    std::size_t const elements = elements_in(chunk, slice);
    T* const to = (slice.tensor != nullptr ? slice.tensor : bucket + slice.bucket_begin) + begin;
    std::uint8_t const* const from =
        codes + (slice.bucket_begin + begin) / coded_elements * C::bytes_per_block;
    if constexpr (zero::detail::is_symmetric<C>) {
        decode_symmetric<C>(from, elements, to);
    } else {
        for (std::size_t block = threadIdx.x; block * coded_elements < elements;
             block += block_threads) {
            float values[coded_elements];
            C::decode(from + block * C::bytes_per_block, values);
            for (std::size_t i = 0; i < coded_elements; ++i) {
                std::size_t const index = block * coded_elements + i;
                if (index < elements) {
                    to[index] = round_result<T>(values[i]);
                }
            }
        }
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
