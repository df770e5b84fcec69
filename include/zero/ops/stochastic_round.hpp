#pragma once

#include "../core/convert.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief A product that is exact, so contraction cannot change it. The intrinsic keeps device code
/// independent of compiler flags.
ZERO_HOST_DEVICE constexpr float exact_product(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fmul_rn(a, b);
    }
#endif
    return a * b;
}

/// @brief A difference that is exact. See `exact_product`.
ZERO_HOST_DEVICE constexpr float exact_difference(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __fsub_rn(a, b);
    }
#endif
    return a - b;
}

} // namespace ZERO_NAMESPACE::ops::detail

namespace ZERO_NAMESPACE::ops {

/// @brief Rounds to one of the two neighbours in T. The probability of the larger magnitude is the
/// distance from the smaller one in units of the last place, so the expectation is the value
/// itself. A value that T represents is unchanged.
///
/// The probability is exact for bfloat16 (16 random bits) and for normal float16 (13 random bits).
/// For subnormal float16 it is rounded down to a multiple of 2^-32. Beyond the largest finite
/// number there is no upper neighbour; there, and for infinities and NaN, the result is that of
/// `from_float`. So a finite value becomes infinite exactly where rounding to nearest makes it so.
/// @param random 32 uniformly distributed bits, such as those of `random_bits` (counter_random.hpp)
template <StorageType T>
    requires(!std::is_same_v<T, float>)
ZERO_HOST_DEVICE constexpr T round_stochastically(float value, std::uint32_t random) noexcept {
    constexpr bool is_bfloat16 = std::is_same_v<T, bfloat16>;
    constexpr std::uint32_t largest = is_bfloat16 ? 0x7f7f0000U : 0x477fe000U;
    auto const bits = __builtin_bit_cast(std::uint32_t, value);
    std::uint32_t const magnitude = bits & 0x7fffffffU;
    if (magnitude > largest) {
        return from_float<T>(value);
    }
    if constexpr (is_bfloat16) {
        return T::from_bits(static_cast<std::uint16_t>((bits + (random >> 16U)) >> 16U));
    } else {
        auto const sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
        if (magnitude >= 0x38800000U) {
            return T::from_bits(static_cast<std::uint16_t>(
                sign | (magnitude - 0x38000000U + (random >> 19U)) >> 13U));
        }
        float const scaled = detail::exact_product(__builtin_bit_cast(float, magnitude), 0x1p24F);
        auto const lower = static_cast<std::uint32_t>(scaled);
        auto const chance = static_cast<std::uint32_t>(detail::exact_product(
            detail::exact_difference(scaled, static_cast<float>(lower)), 0x1p32F));
        return T::from_bits(
            static_cast<std::uint16_t>(sign | (lower + (random < chance ? 1U : 0U))));
    }
}

} // namespace ZERO_NAMESPACE::ops
