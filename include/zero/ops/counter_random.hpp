#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"

#include <cstdint>

/// @file
/// @brief Counter-based random numbers: the bits depend on key and counter alone, so an element
/// gets the same bits in any order, on any rank and on any device. Integer operations only. Not
/// cryptographic.

namespace ZERO_NAMESPACE::ops {

/// @brief A bijection of 32 bits. Every bit of the argument changes each bit of the result in about
/// half of all cases.
///
/// Two rounds of shift, exclusive or and multiplication. A search for minimal bias found the shifts
/// and factors (C. Wellons, "Prospecting for Hash Functions", 2018: "lowbias32").
ZERO_HOST_DEVICE constexpr std::uint32_t mix32(std::uint32_t x) noexcept {
    x ^= x >> 16U;
    x *= 0x7feb352dU;
    x ^= x >> 15U;
    x *= 0x846ca68bU;
    x ^= x >> 16U;
    return x;
}

/// @brief A bijection of 64 bits: the output function of SplitMix64 (Steele, Lea and Flood, "Fast
/// Splittable Pseudorandom Number Generators", 2014).
ZERO_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
    x ^= x >> 30U;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27U;
    x *= 0x94d049bb133111ebU;
    x ^= x >> 31U;
    return x;
}

/// @brief 2^64 divided by the golden ratio. Its multiples modulo 2^64 are far apart.
inline constexpr std::uint64_t golden64 = 0x9e3779b97f4a7c15U;

/// @brief 2^32 divided by the golden ratio.
inline constexpr std::uint32_t golden32 = 0x9e3779b9U;

/// @brief Returns the key of one step's random numbers.
ZERO_HOST_DEVICE constexpr std::uint64_t random_key(std::uint64_t seed,
                                                    std::uint64_t step) noexcept {
    return mix64(mix64(seed + golden64) + step * golden64);
}

/// @brief The second half of the key, combined with the upper half of the counter.
ZERO_HOST_DEVICE constexpr std::uint32_t second_random_key(std::uint64_t key,
                                                           std::uint64_t counter) noexcept {
    return static_cast<std::uint32_t>(key >> 32U)
           + static_cast<std::uint32_t>(counter >> 32U) * golden32;
}

/// @brief 32 random bits for a counter. Among the counters with the same upper half, each value
/// occurs exactly once.
ZERO_HOST_DEVICE constexpr std::uint32_t random_bits(std::uint64_t key,
                                                     std::uint64_t counter) noexcept {
    std::uint32_t const first =
        mix32(static_cast<std::uint32_t>(counter) ^ static_cast<std::uint32_t>(key));
    return mix32(first ^ second_random_key(key, counter));
}

/// @brief Returns the key of the random numbers that round the optimizer states 2 * pair and
/// 2 * pair + 1 in a step. The first state takes `random_bits` of the element, the second one the
/// same bits with `swapped_halves`.
/// @param key `random_key` of the step, with which the weights are rounded
ZERO_HOST_DEVICE constexpr std::uint64_t state_random_key(std::uint64_t key,
                                                          std::uint64_t pair) noexcept {
    return random_key(key, pair + 1);
}

/// @brief Exchanges the upper and the lower 16 bits. Rounding to 16 bits depends on the upper ones,
/// so two numbers are rounded independently by the same random bits.
ZERO_HOST_DEVICE constexpr std::uint32_t swapped_halves(std::uint32_t random) noexcept {
    return random >> 16U | random << 16U;
}

/// @brief A number in [0, 1) for a counter: a multiple of 2^-24. For initial values, with
/// `random_key(seed, parameter)` as the key and the index of the element as the counter.
ZERO_HOST_DEVICE constexpr float uniform(std::uint64_t key, std::uint64_t counter) noexcept {
    return static_cast<float>(random_bits(key, counter) >> 8U) * 0x1.0p-24F;
}

} // namespace ZERO_NAMESPACE::ops
