#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/exact_sum.hpp"
#include "config.cuh"
#include "cub.cuh"
#include "launch.cuh"

#include <cstddef>
#include <cstdint>

/// Exact sums on the device. They equal those of the host, regardless of the order in which threads
/// add.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief The sum of one thread block in shared memory: the digits of `ops::Inspection`.
struct BlockDigits {
    unsigned long long digits[ops::Inspection::digits]; // wrap around as those do

    /// All threads of the block must call it, and synchronise afterwards.
    __device__ void clear() {
        if (threadIdx.x < ops::Inspection::digits) {
            digits[threadIdx.x] = 0;
        }
    }

    __device__ void add(std::uint64_t integer, int exponent) {
        if (integer == 0) {
            return;
        }
        ops::Inspection::Digits const parts = ops::Inspection::digits_of(integer, exponent);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            if (parts.value[i] != 0) {
                atomicAdd(&digits[parts.first + i],
                          static_cast<unsigned long long>(parts.value[i]));
            }
        }
    }

    /// @param number as for `ops::Inspection::add`
    __device__ void add(double number) {
        auto const bits = __builtin_bit_cast(std::uint64_t, number);
        constexpr std::uint64_t hidden = ops::Inspection::hidden_bit;
        add(bits == 0 ? 0 : (bits & (hidden - 1)) | hidden, static_cast<int>(bits >> 52U));
    }

    /// Adds the digits to a result and clears them. All threads of the block must call it, and
    /// synchronise before and after.
    __device__ void move_to(ops::Inspection& result) {
        if (threadIdx.x < ops::Inspection::digits && digits[threadIdx.x] != 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(&result.sums[threadIdx.x]),
                      digits[threadIdx.x]);
            digits[threadIdx.x] = 0;
        }
    }
};

/// @brief A part of an exact sum: an integer of 128 bits, times 2^position on the grid of
/// `ops::Inspection`.
struct Window {
    static constexpr int bits = 124;      ///< the integer is below 2^124
    static constexpr unsigned digits = 6; ///< digits that hold a window with its shift
    static constexpr unsigned most_shift =
        digits * ops::Inspection::digit_bits - bits; ///< the largest shift of a window
    static_assert(most_shift >= ops::Inspection::digit_bits - 1,
                  "zero: the lowest window of a warp fits, wherever it begins.");

    std::uint64_t low;
    std::uint64_t high;
    unsigned position;
};

/// @brief Adds the windows of a warp to the digits of its block. Whole warps call it.
///
/// Each turn adds the windows that begin close above the lowest one. It cuts them into digits,
/// `cub::WarpReduce` sums each half of a digit over the warp, and one thread adds the sum to the
/// block. A half has 14 bits, so its sum has 19. The digits of the block receive the same as if
/// each thread added its own window. Usually one turn takes all windows.
__device__ inline void add_windows(Window window, BlockDigits& block) {
    constexpr unsigned digit_bits = ops::Inspection::digit_bits;
    constexpr unsigned half_bits = digit_bits / 2;
    constexpr unsigned half_mask = (1U << half_bits) - 1;
    constexpr unsigned empty = ~0U;
    for (;;) {
        unsigned const own = (window.low | window.high) == 0 ? empty : window.position;
        unsigned const lowest = least_of_warp(own);
        if (lowest == empty) {
            return;
        }
        unsigned const first = lowest / digit_bits;
        unsigned const shift = own - first * digit_bits; // too large if the window is empty
        std::uint64_t words[3] = {};
        if (shift <= Window::most_shift) {
            words[0] = window.low << shift;
            words[1] = window.high << shift | window.low >> 1U >> (63U - shift);
            words[2] = window.high >> 1U >> (63U - shift);
            window.low = 0;
            window.high = 0;
        }
#pragma unroll
        for (unsigned digit = 0; digit < Window::digits; ++digit) {
            unsigned const word = digit * digit_bits / 64;
            unsigned const bit = digit * digit_bits % 64;
            std::uint64_t const rest = bit + digit_bits > 64 ? words[word + 1] << (64 - bit) : 0;
            auto const value = static_cast<unsigned>(words[word] >> bit | rest);
            unsigned const low = sum_of_warp(value & half_mask);
            unsigned const high = sum_of_warp(value >> half_bits & half_mask);
            unsigned long long const sum =
                low + (static_cast<unsigned long long>(high) << half_bits);
            if (threadIdx.x % 32 == 0 && sum != 0) { // zero beyond the last digit
                atomicAdd(&block.digits[first + digit], sum);
            }
        }
    }
}

/// @brief An exact sum of one thread: a window that begins below the first number, and the digits
/// of the block for numbers outside it.
class ThreadSum {
public:
    static constexpr unsigned most = 1U << 16U; ///< numbers that may be added between two flushes

    __device__ explicit ThreadSum(BlockDigits& block) : _block(&block) {}

    /// @param number as for `ops::Inspection::add`
    __device__ void add(double number) {
        auto const bits = __builtin_bit_cast(std::uint64_t, number);
        if (bits == 0) {
            return;
        }
        constexpr std::uint64_t hidden = ops::Inspection::hidden_bit;
        std::uint64_t const significand = (bits & (hidden - 1)) | hidden;
        auto const exponent = static_cast<int>(bits >> 52U);
        auto shift = static_cast<unsigned>(exponent - _exponent);
        if (shift >= shifts) {
            if ((_low | _high) != 0) {
                _block->add(significand, exponent);
                return;
            }
            int const below = exponent - static_cast<int>(shifts / 2);
            _exponent = below < least_exponent ? least_exponent : below;
            shift = static_cast<unsigned>(exponent - _exponent);
        }
        std::uint64_t const low = significand << shift;
        _low += low;
        _high += (significand >> 1U >> (63U - shift)) + (_low < low ? 1 : 0);
    }

    /// Adds the window to the digits of the block. Whole warps call it.
    __device__ void flush() {
        int const position = _exponent - grid_exponent;
        Window window{_low, _high, static_cast<unsigned>(position)};
        if (position < 0) { // bits below the grid are zero
            auto const below = static_cast<unsigned>(-position);
            window = {_low >> below | _high << 1U << (63U - below), _high >> below, 0};
        }
        add_windows(window, *_block);
        _low = 0;
        _high = 0;
    }

private:
    static constexpr unsigned shifts = 56;            ///< positions of a significand in a window
    static constexpr int grid_exponent = 1075 - 298;  ///< exponent of integers on the grid
    static constexpr int least_exponent = 1023 - 298; ///< exponent of the smallest number, 2^-298
    static constexpr int no_exponent = 4096;          ///< an empty window: holds no number
    static_assert(53 + shifts - 1 + 16 <= Window::bits && most == 1U << 16U,
                  "zero: a window holds the largest sum between two flushes.");

    BlockDigits* _block;
    std::uint64_t _low = 0;
    std::uint64_t _high = 0;
    int _exponent = no_exponent;
};

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
