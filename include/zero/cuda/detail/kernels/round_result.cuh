#pragma once

#include "../../../core/convert.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/storage_types.hpp"
#include "config.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The bits of results, and of NaNs among them, which equal those of the host.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Returns `x`, with any NaN replaced by the quiet NaN that every arithmetic result is
/// stored as, on the host and on the device.
__device__ inline float with_canonical_nan(float x) {
    return x != x ? __uint_as_float(0x7fc00000U) : x;
}

/// @brief Returns `from_float<T>(with_canonical_nan(x))`.
template <class T>
inline __device__ T round_result(float x) {
    if constexpr (std::is_same_v<T, bfloat16>) { // rounding this NaN needs no exception
        auto const bits = __builtin_bit_cast(std::uint32_t, with_canonical_nan(x));
        return bfloat16::from_bits(
            static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U));
    } else {
        return from_float<T>(with_canonical_nan(x));
    }
}

/// @brief Rounds an even number of results of arithmetic, as `round_result` does.
template <std::size_t n, class T>
__device__ inline void round_results(float const (&values)[n], T (&rounded)[n]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, float16>) {
#pragma unroll
        for (std::size_t i = 0; i < n; i += 2) {
            unsigned pair = 0;
            unsigned is_nan = 0; // all bits of a half
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(values[i + 1]), "f"(values[i]));
            asm("set.neu.u32.f16x2 %0, %1, %1;" : "=r"(is_nan) : "r"(pair));
            pair &= ~(is_nan & 0x81ff81ffU); // 0x7e00, the float16 of the canonical NaN
            rounded[i] = float16::from_bits(static_cast<std::uint16_t>(pair & 0xffffU));
            rounded[i + 1] = float16::from_bits(static_cast<std::uint16_t>(pair >> 16U));
        }
    } else
#endif
    {
#pragma unroll
        for (std::size_t i = 0; i < n; ++i) {
            rounded[i] = round_result<T>(values[i]);
        }
    }
}

/// @brief Returns a value that takes part in arithmetic, whose results are NaN whatever the NaN.
template <class T>
__device__ inline float to_operand(T x) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float16>) {
        float value = 0.0F;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
        return value;
    }
#endif
    return to_float(x);
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
