#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/norm.hpp"
#include "config.cuh"
#include "launch.cuh"

#include <cstddef>
#include <cstdint>

/// Exact sums of leaves on the device. They have the bits that `ops::Inspection` documents, in
/// whatever order threads add.
///
/// Eight consecutive threads sum a leaf: thread k is its lane k and holds elements k, k + 8, k +
/// 16, ...
namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

inline constexpr unsigned whole_warp = 0xffffffffU;
inline constexpr unsigned leaf_lanes = 8;
inline constexpr std::size_t warp_elements = 4 * ops::leaf_elements; ///< summed by a warp at once
static_assert(warp_elements == 32 * pack_elements);

/// @brief Transposes a leaf in three rounds of exchanges: from eight consecutive elements per
/// thread to every eighth element per thread.
__device__ inline void exchange_in_leaf(float (&x)[pack_elements]) {
    unsigned const lane = threadIdx.x % leaf_lanes;
#pragma unroll
    for (unsigned step = leaf_lanes / 2; step != 0; step /= 2) {
#pragma unroll
        for (unsigned i = 0; i < leaf_lanes; ++i) {
            if ((i & step) == 0) {
                bool const is_upper = (lane & step) != 0;
                float const received =
                    __shfl_xor_sync(whole_warp, is_upper ? x[i] : x[i | step], step);
                (is_upper ? x[i] : x[i | step]) = received;
            }
        }
    }
}

/// @brief Returns the sum of a leaf in each of its threads; not finite if an element is not finite.
/// @param warp_mask the threads that take part
template <NormKind kind>
__device__ inline double sum_leaf(float const (&x)[pack_elements], unsigned warp_mask) {
    double sum = 0.0;
#pragma unroll
    for (float const value : x) {
        auto const wide = static_cast<double>(value);
        sum = kind == NormKind::l1 ? ops::add(sum, fabs(wide))
                                   : __fma_rn(wide, wide, sum); // the square is exact in double
    }
    sum = ops::add(sum, __shfl_xor_sync(warp_mask, sum, 4));
    sum = ops::add(sum, __shfl_xor_sync(warp_mask, sum, 1));
    return ops::add(sum, __shfl_xor_sync(warp_mask, sum, 2));
}

/// @brief The sums of one thread block, in shared memory.
struct BlockSums {
    unsigned long long
        sums[ops::Inspection::count]; // as in `Inspection`, with the same wrap-around
    long long first_non_finite;

    /// All threads of the block call it.
    __device__ void clear() {
        if (threadIdx.x < ops::Inspection::count) {
            sums[threadIdx.x] = 0;
        }
        if (threadIdx.x == 0) {
            first_non_finite = ops::Inspection::none;
        }
        __syncthreads();
    }

    __device__ void add(std::uint64_t integer, int exponent) {
        if (integer == 0) {
            return;
        }
        ops::Inspection::Digits const digits = ops::Inspection::digits_of(integer, exponent);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            if (digits.value[i] != 0) {
                atomicAdd(&sums[digits.first + i],
                          static_cast<unsigned long long>(digits.value[i]));
            }
        }
    }

    __device__ void add_non_finite(long long index) {
        atomicAdd(&sums[ops::Inspection::digits], 1ULL);
        atomicMin(&first_non_finite, index);
    }

    /// All threads of the block call it, after the last addition.
    __device__ void write_to(ops::Inspection& result) {
        __syncthreads();
        if (threadIdx.x < ops::Inspection::count && sums[threadIdx.x] != 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(&result.sums[threadIdx.x]),
                      sums[threadIdx.x]);
        }
        if (threadIdx.x == 0 && first_non_finite != ops::Inspection::none) {
            atomicMin(reinterpret_cast<long long*>(&result.first_non_finite), first_non_finite);
        }
    }
};

/// @brief The exact sum of the leaves of one thread: a window of 128 bits that begins below the
/// first leaf, and the digits of the block for leaves outside it.
class ThreadSum {
public:
    __device__ explicit ThreadSum(BlockSums& block) : _block(&block) {}

    __device__ void add(double leaf) {
        auto const bits = __builtin_bit_cast(std::uint64_t, leaf);
        if (bits == 0) {
            return;
        }
        constexpr std::uint64_t hidden = ops::Inspection::hidden_bit;
        std::uint64_t const significand = (bits & (hidden - 1)) | hidden;
        auto const exponent = static_cast<int>(bits >> 52U);
        if (_leaves == 0) {
            _exponent =
                exponent - window / 2 < least_exponent ? least_exponent : exponent - window / 2;
        }
        int const shift = exponent - _exponent;
        if (shift < 0 || shift >= window) {
            _block->add(significand, exponent);
            return;
        }
        std::uint64_t const low = significand << static_cast<unsigned>(shift);
        _low += low;
        _high += (shift == 0 ? 0 : significand >> static_cast<unsigned>(64 - shift))
                 + (_low < low ? 1 : 0);
        if (++_leaves == most_leaves) {
            flush();
        }
    }

    __device__ void flush() {
        constexpr std::uint64_t part =
            (std::uint64_t{1} << 62U) - 1; // an integer must stay below 2^63
        _block->add(_low & part, _exponent);
        _block->add((_low >> 62U | _high << 2U) & part, _exponent + 62);
        _block->add(_high >> 60U, _exponent + 124);
        _low = 0;
        _high = 0;
        _leaves = 0;
    }

private:
    static constexpr int window = 56; ///< significands have 53 bits, hence 109 with the shift
    static constexpr unsigned most_leaves = 1U << 18U; ///< the sum then has at most 127 bits
    static constexpr int least_exponent = 1023 - 298;  ///< exponent of the least leaf, 2^-298

    BlockSums* _block;
    std::uint64_t _low = 0;
    std::uint64_t _high = 0;
    int _exponent = least_exponent;
    unsigned _leaves = 0;
};

/// @brief Counts the non-finite elements of a leaf and returns the sum of the others. The eight
/// threads of the leaf call it.
template <NormKind kind>
__device__ inline double sum_finite(float (&x)[pack_elements], long long leaf_index,
                                    BlockSums& block) {
    unsigned const lane = threadIdx.x % leaf_lanes;
#pragma unroll
    for (unsigned i = 0; i < pack_elements; ++i) {
        if (!(fabsf(x[i]) < __uint_as_float(0x7f800000U))) {
            block.add_non_finite(leaf_index + i * leaf_lanes + lane);
            x[i] = 0.0F;
        }
    }
    return sum_leaf<kind>(x, 0xffU << (threadIdx.x % 32 / leaf_lanes * leaf_lanes));
}

/// @brief Returns the sum of the finite elements of a leaf, and counts the others. Whole warps call
/// it.
template <NormKind kind>
__device__ inline double take_leaf(float (&x)[pack_elements], long long leaf_index,
                                   BlockSums& block) {
    double sum = sum_leaf<kind>(x, whole_warp);
    if (!(sum < __longlong_as_double(0x7ff0000000000000LL))) { // equal in all threads of a leaf;
                                                               // sums of finite elements are finite
        sum = sum_finite<kind>(x, leaf_index, block);
    }
    return sum;
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail
