#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/arithmetic.hpp"
#include "chunk.hpp"
#include "chunk_sizes.cuh"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>
#include <cstdint>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief One pointer per rank, as a kernel argument, which is copied when the kernel is enqueued.
template <class T, int most>
struct Peers {
    T const* memory[most];
    int world;
};

inline constexpr int few_peers = 8;    ///< 72 bytes of arguments
inline constexpr int most_peers = 256; ///< 2 KiB

/// @brief Sums a pack over all ranks, in float and in rank order.
template <class T, int most>
struct SumRanksPack {
    Peers<T, most> const& peers;
    T* out;
    std::size_t begin;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float sums[pack_elements];
        load_operands<whole>(peers.memory[0] + begin + index, count, sums);
        for (int rank = 1; rank < peers.world; ++rank) {
            float values[pack_elements];
            load_operands<whole>(peers.memory[rank] + begin + index, count, values);
#pragma unroll
            for (std::size_t i = 0; i < pack_elements; ++i) {
                sums[i] = ops::add(sums[i], values[i]);
            }
        }
        store_results<whole>(out + begin + index, count, sums);
    }
};

/// @brief Sums elements over all ranks, in float and in rank order; rounds once.
template <class T, int most>
ZERO_KERNEL void __launch_bounds__(block_threads)
    sum_ranks_kernel(T* out, __grid_constant__ Peers<T, most> const peers, std::size_t n) {
    std::size_t const begin = blockIdx.x * chunk_elements;
    bool is_aligned = are_aligned(out);
    for (int rank = 0; rank < peers.world; ++rank) {
        is_aligned = is_aligned && are_aligned(peers.memory[rank]);
    }
    for_packs(elements_of_chunk(begin, n), is_aligned, SumRanksPack<T, most>{peers, out, begin});
}

/// @brief Reduces a few integers over all ranks, the scalars of a step: the first `sums` to their
/// sums, the others to their minima.
template <int most>
ZERO_KERNEL void __launch_bounds__(block_threads)
    combine_integers_kernel(std::int64_t* out,
                            __grid_constant__ Peers<std::int64_t, most> const peers, std::size_t n,
                            std::size_t sums) {
    for (std::size_t i = blockIdx.x * std::size_t{block_threads} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * block_threads) {
        std::int64_t result = global(peers.memory[0])[i];
        for (int rank = 1; rank < peers.world; ++rank) {
            std::int64_t const other = global(peers.memory[rank])[i];
            result = i < sums ? result + other : other < result ? other : result;
        }
        out[i] = result;
    }
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail

#pragma nv_diagnostic pop
