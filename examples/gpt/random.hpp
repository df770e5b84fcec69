#pragma once

#include <zero/core/host_device.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace gpt {

/// @brief A bijective mix of 64 bits: every input bit reaches every output bit (multiply and
/// xor-shift rounds).
ZERO_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value ^= value >> 32U;
    value *= 0xd6e8feb86659fd93U;
    value ^= value >> 32U;
    value *= 0xd6e8feb86659fd93U;
    value ^= value >> 32U;
    return value;
}

/// @brief A random number that depends only on its key.
///
/// There is no state: (seed, parameter, index) always gives the same number, on any rank, with any
/// number of ranks and in any order of calls.
ZERO_HOST_DEVICE constexpr std::uint64_t
random_bits(std::initializer_list<std::uint64_t> key) noexcept {
    std::uint64_t hash =
        0x9e3779b97f4a7c15U; // any odd constant: zero would be a fixed point of the mix
    for (std::uint64_t const part : key) {
        hash = mix(hash + part) + 0x9e3779b97f4a7c15U;
    }
    return mix(hash);
}

/// @brief A number below `bound` (at least 1): the high half of a product, whose bias is
/// negligible.
ZERO_HOST_DEVICE constexpr std::uint64_t
random_below(std::uint64_t bound, std::initializer_list<std::uint64_t> key) noexcept {
    std::uint64_t const bits = random_bits(key) >> 32U;
    return (bits * bound) >> 32U; // bound is a text length, below 2^32
}

/// @brief A normal deviate with mean 0 and deviation 1 (Box and Muller) from the two halves of one
/// random number.
inline double random_normal(std::initializer_list<std::uint64_t> key) noexcept {
    std::uint64_t const bits = random_bits(key);
    double const first =
        (static_cast<double>(bits >> 32U) + 0.5) * 0x1.0p-32; // in (0, 1): the logarithm is finite
    double const second = (static_cast<double>(bits & 0xffffffffU) + 0.5) * 0x1.0p-32;
    return std::sqrt(-2.0 * std::log(first)) * std::cos(2.0 * std::numbers::pi * second);
}

} // namespace gpt
