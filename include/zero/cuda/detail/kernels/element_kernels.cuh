#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Sets elements to a value. @tparam Word unsigned integer of the size of an element
template <class Word>
ZERO_KERNEL void __launch_bounds__(block_threads)
    fill_kernel(Word* out, std::size_t n, Word value) {
    std::size_t const begin = blockIdx.x * chunk_elements;
    std::size_t const elements = elements_of_chunk(begin, n);
    Word* const to = out + begin;
    for (std::size_t i = threadIdx.x; i < elements; i += block_threads) {
        to[i] = value;
    }
}

/// @brief Converts a pack, times a factor if `scaled`.
template <bool scaled, class To, class From>
struct ConvertPack {
    To* to;
    From const* from;
    float factor;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float values[pack_elements];
        load_floats<whole>(from + index, count, values);
        if constexpr (scaled) {
#pragma unroll
            for (float& value : values) {
                value = ops::mul(value, factor);
            }
            store_results<whole>(to + index, count, values);
        } else {
            store_floats<whole>(to + index, count, values);
        }
    }
};

/// @brief Converts elements, times a factor if `scaled`.
template <bool scaled, class To, class From>
ZERO_KERNEL void __launch_bounds__(block_threads)
    convert_kernel(To* out, From const* in, std::size_t n, float factor) {
    std::size_t const begin = blockIdx.x * chunk_elements;
    ConvertPack<scaled, To, From> const body{out + begin, in + begin, factor};
    for_packs(elements_of_chunk(begin, n), are_aligned(body.to, body.from), body);
}

/// @brief Adds a pack to a sum, in float.
template <class To, class From>
struct AccumulatePack {
    To* sum;
    From const* from;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float sums[pack_elements];
        float values[pack_elements];
        load_operands<whole>(sum + index, count, sums);
        load_operands<whole>(from + index, count, values);
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            sums[i] = ops::add(sums[i], values[i]);
        }
        store_results<whole>(sum + index, count, sums);
    }
};

/// @brief Adds elements to sums, in float.
template <class To, class From>
ZERO_KERNEL void __launch_bounds__(block_threads)
    accumulate_kernel(To* sum, From const* in, std::size_t n) {
    std::size_t const begin = blockIdx.x * chunk_elements;
    AccumulatePack<To, From> const body{sum + begin, in + begin};
    for_packs(elements_of_chunk(begin, n), are_aligned(body.sum, body.from), body);
}

/// @brief Runs a command of the engine on its scalars, in one thread.
template <class Functor>
ZERO_KERNEL void __launch_bounds__(1) run_kernel(Functor functor) {
    functor();
}

/// @brief Writes 1 if subnormal numbers survive arithmetic, otherwise 0.
template <class = void>
ZERO_KERNEL void __launch_bounds__(1) arithmetic_kernel(float least_normal, int* is_exact) {
    float const half = ops::mul(least_normal, 0.5F);
    *is_exact = half != 0.0F && ops::add(half, half) == least_normal ? 1 : 0;
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
