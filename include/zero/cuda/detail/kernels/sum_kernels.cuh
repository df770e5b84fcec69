#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/tree_sum.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief One pointer per rank, as a kernel argument, which is copied when the kernel is enqueued.
template <class T, int most>
struct Peers {
    T const* memory[most];
    int world;
};

inline constexpr int few_peers = 8;    ///< 72 bytes of arguments
inline constexpr int most_peers = 256; ///< 2 KiB

/// @brief Copies a table of pointers. @throws InvalidArgument for more than `most` ranks
template <class T, int most>
ZERO_CUDA_HIDDEN Peers<T, most> peers_of(T const* const* peers, int world) {
    if (world > most) {
        zero::detail::throw_error<InvalidArgument>({"zero: a group of ", world,
                                                    " ranks on one device; at most ", most,
                                                    " are supported."});
    }
    Peers<T, most> result{};
    std::copy_n(peers, world, result.memory);
    result.world = world;
    return result;
}

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

/// @brief For each rank, to how many of the held sums its leaf of a subtree is added: what
/// `ops::TreeWalk` says, as a kernel argument, so that no thread walks.
template <int most>
struct TreeCarries {
    unsigned char of_rank[most];
};

template <int most>
ZERO_CUDA_HIDDEN TreeCarries<most> tree_carries(int world, std::size_t group) {
    TreeCarries<most> result{};
    ops::TreeWalk walk(static_cast<std::size_t>(world), group);
    for (int rank = 0; rank < world; ++rank) {
        result.of_rank[rank] = static_cast<unsigned char>(walk.next());
    }
    return result;
}

/// @brief Sums a pack over all ranks as a subtree of micro-batches, and adds the sums that are
/// held. The sums of the subtree stay in registers: every index into them is known to the compiler.
template <class A, class T, int most>
struct SumTreePack {
    static constexpr int levels = static_cast<int>(ops::detail::log2_of(most));
    static constexpr int loads = most == few_peers ? 4 : 1; ///< at once; more would spill

    Peers<T, most> const& peers;
    TreeCarries<most> const& carries;
    ops::TreeSum<A> const& sum;
    std::size_t begin;

    template <bool whole>
    __device__ void operator()(std::size_t index, std::size_t count) const {
        float held[levels][pack_elements];
        float all[pack_elements];
        int height = 0;
        for (int first = 0; first < peers.world; first += loads) {
            float values[loads][pack_elements];
#pragma unroll
            for (int next = 0; next < loads; ++next) {
                if (first + next < peers.world) {
                    load_operands<whole>(peers.memory[first + next] + begin + index, count,
                                         values[next]);
                }
            }
#pragma unroll
            for (int next = 0; next < loads; ++next) {
                if (first + next < peers.world) {
                    copy(all, values[next]);
                    int const place = height - carries.of_rank[first + next]; // of the new sum
#pragma unroll
                    for (int level = levels - 1; level >= 0; --level) { // the newest first
                        if (level >= place && level < height) {
                            add_to(all, held[level]);
                        }
                    }
#pragma unroll
                    for (int level = 0; level < levels; ++level) {
                        if (level == place) {
                            copy(held[level], all);
                        }
                    }
                    height = place + 1;
                }
            }
        }
        for (std::size_t number = sum.held.count; number-- != 0;) {
            float older[pack_elements];
            load_operands<whole>(sum.held.at(number) + begin + index, count, older);
            add_to(all, older);
        }
        store_results<whole>(sum.out + begin + index, count, all);
    }

private:
    __device__ static void add_to(float (&sums)[pack_elements],
                                  float const (&older)[pack_elements]) {
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            sums[i] = ops::add(older[i], sums[i]);
        }
    }

    __device__ static void copy(float (&to)[pack_elements], float const (&from)[pack_elements]) {
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            to[i] = from[i];
        }
    }
};

/// @brief Sums elements over all ranks as a subtree of micro-batches, adds the sums that are held,
/// and rounds once. Two blocks that fit are enough: to fit four, ptxas spills on newer devices.
template <class A, class T, int most>
ZERO_KERNEL void __launch_bounds__(block_threads, 2)
    sum_tree_kernel(__grid_constant__ ops::TreeSum<A> const sum,
                    __grid_constant__ Peers<T, most> const peers,
                    __grid_constant__ TreeCarries<most> const carries, std::size_t n) {
    std::size_t const begin = blockIdx.x * chunk_elements;
    bool is_aligned = are_aligned(sum.out);
    for (int rank = 0; rank < peers.world; ++rank) {
        is_aligned = is_aligned && are_aligned(peers.memory[rank]);
    }
    for (std::size_t number = 0; number < sum.held.count; ++number) {
        is_aligned = is_aligned && are_aligned(sum.held.at(number));
    }
    for_packs(elements_of_chunk(begin, n), is_aligned,
              SumTreePack<A, T, most>{peers, carries, sum, begin});
}

/// @brief Enqueues `sum_tree_kernel`. @throws InvalidArgument for more than `most` ranks; CudaError
template <int most, class A, class T>
ZERO_CUDA_HIDDEN void launch_sum_tree(cudaStream_t queue, ops::TreeSum<A> const& sum,
                                      T const* const* peers, int world, std::size_t elements) {
    auto const table = peers_of<T, most>(peers, world);
    launch(queue, chunks_of(elements), block_threads, sum_tree_kernel<A, T, most>, sum, table,
           tree_carries<most>(world, sum.held.rank_group), elements);
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

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
