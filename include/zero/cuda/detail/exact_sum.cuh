#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/detail/square_anchor.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/norm.hpp"
#include "config.cuh"
#include "launch.cuh"

#include <cstddef>
#include <cstdint>

/// Exact sums on the device. They equal those of the host, in whatever order threads add.
namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

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

    /// @param number as for `ops::Inspection::add`
    __device__ void add(double number) {
        auto const bits = __builtin_bit_cast(std::uint64_t, number);
        constexpr std::uint64_t hidden = ops::Inspection::hidden_bit;
        add(bits == 0 ? 0 : (bits & (hidden - 1)) | hidden, static_cast<int>(bits >> 52U));
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

/// @brief An exact sum of one thread: a window of 128 bits that begins below the first number, and
/// the digits of the block for numbers outside it.
class ThreadSum {
public:
    __device__ explicit ThreadSum(BlockSums& block) : _block(&block) {}

    /// @param number as for `ops::Inspection::add`
    __device__ void add(double number) {
        auto const bits = __builtin_bit_cast(std::uint64_t, number);
        if (bits == 0) {
            return;
        }
        constexpr std::uint64_t hidden = ops::Inspection::hidden_bit;
        std::uint64_t const significand = (bits & (hidden - 1)) | hidden;
        auto const exponent = static_cast<int>(bits >> 52U);
        if (_count == 0) {
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
        if (++_count == most) {
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
        _count = 0;
    }

private:
    static constexpr int window = 56; ///< significands have 53 bits, hence 109 with the shift
    static constexpr unsigned most = 1U << 18U;       ///< the sum then has at most 127 bits
    static constexpr int least_exponent = 1023 - 298; ///< exponent of the least number, 2^-298

    BlockSums* _block;
    std::uint64_t _low = 0;
    std::uint64_t _high = 0;
    int _exponent = least_exponent;
    unsigned _count = 0;
};

/// @brief The exact sum of |x| (l1) or x^2 (l2) of one thread, over packs. Elements that are not
/// finite are counted and add nothing.
template <NormKind kind>
class PackSum {
public:
    __device__ explicit PackSum(BlockSums& block) : _block(&block), _sum(block), _rest(block) {}

    /// @param index index of the first element of the pack, for `first_non_finite`
    __device__ void add(float (&x)[pack_elements], long long index) {
        unsigned largest_twice = 0;    // twice the bits of magnitudes, which are in their order
        unsigned smallest_twice = ~0U; // less 1, so that zeros become the largest number
#pragma unroll
        for (float const value : x) {
            unsigned const twice = __builtin_bit_cast(std::uint32_t, value) << 1U;
            largest_twice = largest_twice < twice ? twice : largest_twice;
            smallest_twice = twice - 1 < smallest_twice ? twice - 1 : smallest_twice;
        }
        auto const largest = static_cast<int>(largest_twice >> 24U);
        auto const smallest = static_cast<int>((smallest_twice + 1) >> 24U);
        if (largest_twice == 0) {
            return; // only zeros
        }
        if (largest == 255) {
            drop_non_finite(x, index);
            add_each(x);
        } else if (!add_together(x, largest, smallest)) {
            add_each(x);
        }
    }

    __device__ void flush() {
        _sum.flush();
        _rest.flush();
    }

private:
    using Anchor = ops::detail::SquareAnchor<24, 3, 3>; // a pack has 8 terms

    /// @return false, and nothing is added, if the exponents are too far apart
    __device__ bool add_together(float const (&x)[pack_elements], int largest, int smallest) {
        if constexpr (kind == NormKind::l1) {
            // The sum is a multiple of 2^(smallest - 150) below 2^(largest - 127 + 4).
            if (largest - smallest > 53 - 150 + 127 - 4) {
                return false;
            }
            double sum = 0.0;
#pragma unroll
            for (float const value : x) {
                sum = ops::add(sum, fabs(static_cast<double>(value)));
            }
            _sum.add(sum);
        } else {
            Anchor const anchor(largest);
            if (!anchor.serves(largest, smallest)) {
                return false;
            }
            double sum = anchor.anchor;
            double rest = anchor.offset;
#pragma unroll
            for (float const value : x) {
                auto const wide = static_cast<double>(value);
                double const next = __fma_rn(wide, wide, sum);
                rest = ops::add(rest, __fma_rn(wide, wide, -ops::sub(next, sum)));
                sum = next;
            }
            _sum.add(ops::sub(ops::sub(sum, anchor.anchor), anchor.offset));
            _rest.add(rest); // far below, so it has a window of its own
        }
        return true;
    }

    /// Rare, so it goes to the digits of the block.
    __device__ void add_each(float const (&x)[pack_elements]) {
#pragma unroll
        for (float const value : x) {
            auto const wide = static_cast<double>(value);
            _block->add(kind == NormKind::l1 ? fabs(wide) : ops::mul(wide, wide));
        }
    }

    __device__ void drop_non_finite(float (&x)[pack_elements], long long index) {
#pragma unroll
        for (unsigned i = 0; i < pack_elements; ++i) {
            if (!(fabsf(x[i]) < __uint_as_float(0x7f800000U))) {
                _block->add_non_finite(index + i);
                x[i] = 0.0F;
            }
        }
    }

    BlockSums* _block;
    ThreadSum _sum;
    ThreadSum _rest;
};

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail
