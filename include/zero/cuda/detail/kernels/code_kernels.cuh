#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/block_codecs.hpp"
#include "../../table_range.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "round_result.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

using zero::detail::coded_elements;

/// Threads that share a block of codes: each has eight consecutive elements.
inline constexpr unsigned code_threads = coded_elements / pack_elements;
static_assert(chunk_elements % coded_elements == 0 && warp_threads % code_threads == 0);

/// Elements that a thread has: a whole block if one of the codecs is known by its functions only.
template <class... C>
inline constexpr std::size_t thread_elements =
    ((std::is_same_v<C, float> || zero::detail::is_symmetric<C>)&&...) ? pack_elements
                                                                       : coded_elements;

/// @brief Reads the consecutive elements of a thread, from `index` on, and zeros behind the end.
template <class T, std::size_t n>
__device__ inline void load_coded(T const* from, std::size_t index, std::size_t elements,
                                  float (&values)[n]) {
    if constexpr (n == pack_elements) {
        if (index + n <= elements && are_aligned(from)) {
            load_floats<true>(from + index, n, values);
            return;
        }
    }
#pragma unroll
    for (std::size_t i = 0; i < n; ++i) {
        values[i] = index + i < elements ? to_float(*global(from + index + i)) : 0.0F;
    }
}

/// @brief Rounds the elements of a thread and writes those before the end.
template <class T, std::size_t n>
__device__ inline void store_decoded(T* to, std::size_t index, std::size_t elements,
                                     float const (&values)[n]) {
    T stored[n];
    round_results(values, stored);
    if constexpr (n == pack_elements) {
        if (index + n <= elements && are_aligned(to)) {
            store<true>(to + index, n, stored);
            return;
        }
    }
#pragma unroll
    for (std::size_t i = 0; i < n; ++i) {
        if (index + i < elements) {
            *global(to + index + i) = stored[i];
        }
    }
}

/// @brief Encodes the elements of a thread into their block, if that `is_written`. All threads of a
/// warp take part in a call.
/// @param decoded what the codes decode to
template <class C, std::size_t n>
__device__ inline void encode_part(float const (&values)[n], std::uint8_t* block, bool is_written,
                                   float (&decoded)[n]) {
    if constexpr (n == coded_elements) {
        if (is_written) {
            C::encode(values, block);
            C::decode(block, decoded);
        }
    } else {
        unsigned const lane = threadIdx.x % code_threads;
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
        for (std::size_t i = 0; i < n; ++i) {
            std::int32_t const code =
                largest < 0x7f800000U ? ops::nearest_integer(ops::mul(values[i], inverse)) : 0;
            bytes[i / 4] |= (static_cast<std::uint32_t>(code) & mask) << 8U * (i % 4);
            decoded[i] = ops::mul(static_cast<float>(code), scale);
        }
        unsigned writers = code_threads;
        if constexpr (C::code_bits == 4) { // the second half of the elements, in the upper halves
            writers /= 2;
#pragma unroll
            for (std::uint32_t& word : bytes) {
                word |= __shfl_xor_sync(whole_warp, word, code_threads / 2) << 4U;
            }
        }
        if (is_written) {
            auto* const to = reinterpret_cast<std::uint16_t*>(block); // addresses of codes are even
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

/// @brief Decodes the elements of a thread from their block.
template <class C, std::size_t n>
__device__ inline void decode_part(std::uint8_t const* block, float (&values)[n]) {
    if constexpr (n == coded_elements) {
        C::decode(block, values);
    } else {
        unsigned const lane = threadIdx.x % code_threads;
        bool const is_upper = C::code_bits == 4 && lane >= code_threads / 2;
        unsigned const place = is_upper ? lane - code_threads / 2 : lane;
        auto const* const from = reinterpret_cast<std::uint16_t const*>(block);
        float const scale =
            __uint_as_float(std::uint32_t{*global(from + C::code_bytes / 2)} << 16U);
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
    }
}

/// The elements of a slice. Without a tensor they are in its bucket.
template <class T, class InBucket>
inline __device__ InBucket* place_of(CopySlice<T> const& slice, InBucket* bucket) {
    return slice.tensor != nullptr ? slice.tensor : bucket + slice.bucket_begin;
}
template <class InBucket>
inline __device__ InBucket* place_of(CodedSlice const& slice, InBucket* bucket) {
    return bucket + slice.bucket_begin;
}
/// The number of its first block of codes.
template <class T>
inline __device__ std::size_t block_of(CopySlice<T> const& slice) {
    return slice.bucket_begin / coded_elements;
}
inline __device__ std::size_t block_of(CodedSlice const& slice) {
    return slice.block;
}

/// @brief The chunk of a table that a block of threads has.
template <class Slice>
struct CodedChunk {
    Slice slice;
    std::size_t begin;    ///< its first element, in the slice
    std::size_t elements; ///< its length
    std::size_t block;    ///< number of its first block of codes
};

template <class Slice>
inline __device__ CodedChunk<Slice> chunk_of(TableRange<Slice> const& table) {
    Chunk const chunk = table.chunks[blockIdx.x];
    Slice const slice = table.slices[chunk.slice];
    std::size_t const begin = std::size_t{chunk.index} * chunk_elements;
    return {slice, begin, elements_in(chunk, slice), block_of(slice) + begin / coded_elements};
}

/// @brief Encodes a chunk of a table in each block of threads.
template <class C, class Slice, class T>
ZERO_KERNEL void __launch_bounds__(block_threads)
    encode_kernel(TableRange<Slice> table, T const* bucket, std::uint8_t* codes) {
    constexpr std::size_t n = thread_elements<C>;
    auto const chunk = chunk_of(table);
    T const* const from = place_of(chunk.slice, bucket) + chunk.begin;
    std::uint8_t* const to = codes + chunk.block * C::bytes_per_block;
    for (std::size_t round = 0; round < chunk.elements; round += block_threads * n) {
        std::size_t const index = round + threadIdx.x * n;
        std::size_t const block = index / coded_elements;
        float values[n];
        float decoded[n];
        load_coded(from, index, chunk.elements, values);
        encode_part<C>(values, to + block * C::bytes_per_block,
                       block * coded_elements < chunk.elements, decoded);
    }
}

/// @brief The same for values plus errors, which it replaces. @tparam S float or a codec
template <class C, class S, class T, class E>
ZERO_KERNEL void __launch_bounds__(block_threads)
    feedback_kernel(TableRange<CodedSlice> table, T const* bucket, std::uint8_t* codes,
                    CodedErrors<E> errors) {
    constexpr std::size_t n = thread_elements<C, S>;
    constexpr bool is_float = std::is_same_v<S, float>;
    auto const chunk = chunk_of(table);
    T const* const from = bucket + chunk.slice.bucket_begin + chunk.begin;
    std::uint8_t* const to = codes + chunk.block * C::bytes_per_block;
    std::size_t const first = chunk.slice.bucket_begin + chunk.begin; // of the errors
    float const factor = errors.factor == nullptr ? 1.0F : *global(errors.factor);
    float const taken = ops::sub(1.0F, errors.beta);
    for (std::size_t round = 0; round < chunk.elements; round += block_threads * n) {
        std::size_t const index = round + threadIdx.x * n;
        std::size_t const block = index / coded_elements;
        bool const is_written = block * coded_elements < chunk.elements;
        float values[n];
        float kept[n] = {};
        float decoded[n] = {};
        load_coded(from, index, chunk.elements, values);
        E* error = errors.errors;
        if constexpr (is_float) {
            error += first;
            load_coded(error, index, chunk.elements, kept);
        } else {
            error += (first / coded_elements + block) * S::bytes_per_block;
            if (is_written) {
                decode_part<S>(error, kept);
            }
            __syncwarp(); // the threads of a block of codes have read it
        }
#pragma unroll
        for (std::size_t i = 0; i < n; ++i) {
            bool const is_inside = is_float || index + i < chunk.elements;
            kept[i] = ops::mul(is_inside ? kept[i] : 0.0F, factor);
            values[i] = ops::add(values[i], kept[i]);
        }
        encode_part<C>(values, to + block * C::bytes_per_block, is_written, decoded);
#pragma unroll
        for (std::size_t i = 0; i < n; ++i) {
            float const lost = ops::sub(values[i], decoded[i]);
            float const next = ops::fma(errors.beta, kept[i], ops::mul(taken, lost));
            bool const is_inside = is_float || index + i < chunk.elements;
            kept[i] = is_inside && ops::sub(next, next) <= 0.0F ? next : 0.0F;
        }
        if constexpr (is_float) {
            store_decoded(error, index, chunk.elements, kept);
        } else {
            encode_part<S>(kept, error, is_written, decoded);
        }
    }
}

/// @brief Decodes a chunk of a table in each block of threads.
template <class C, class T>
ZERO_KERNEL void __launch_bounds__(block_threads)
    decode_kernel(TableRange<CopySlice<T>> table, std::uint8_t const* codes, T* bucket) {
    constexpr std::size_t n = thread_elements<C>;
    auto const chunk = chunk_of(table);
    T* const to = place_of(chunk.slice, bucket) + chunk.begin;
    std::uint8_t const* const from = codes + chunk.block * C::bytes_per_block;
    for (std::size_t index = threadIdx.x * n; index < chunk.elements; index += block_threads * n) {
        float values[n];
        decode_part<C>(from + index / coded_elements * C::bytes_per_block, values);
        store_decoded(to, index, chunk.elements, values);
    }
}

/// @brief Decodes a chunk of all ranks, adds in rank order, and rounds the sums once.
template <class C, class A>
ZERO_KERNEL void __launch_bounds__(block_threads)
    decode_sum_kernel(TableRange<CodedSlice> table, std::uint8_t const* codes, CodedPieces pieces,
                      A* sums, bool is_added) {
    constexpr std::size_t n = thread_elements<C>;
    auto const chunk = chunk_of(table);
    A* const to = sums + chunk.slice.bucket_begin + chunk.begin;
    std::uint8_t const* const from = codes + chunk.block * C::bytes_per_block;
    for (std::size_t index = threadIdx.x * n; index < chunk.elements; index += block_threads * n) {
        std::uint8_t const* block = from + index / coded_elements * C::bytes_per_block;
        float sum[n];
        decode_part<C>(block, sum);
#pragma unroll 4
        for (std::size_t rank = 1; rank < pieces.ranks; ++rank) {
            block += pieces.bytes;
            float values[n];
            decode_part<C>(block, values);
#pragma unroll
            for (std::size_t i = 0; i < n; ++i) {
                sum[i] = ops::add(sum[i], values[i]);
            }
        }
        if (is_added) {
            float before[n];
            load_coded(to, index, chunk.elements, before);
#pragma unroll
            for (std::size_t i = 0; i < n; ++i) {
                sum[i] = ops::add(before[i], sum[i]);
            }
        }
        store_decoded(to, index, chunk.elements, sum);
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
