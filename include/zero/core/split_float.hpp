#pragma once

#include "convert.hpp"
#include "detail/namespace.hpp"
#include "storage_types.hpp"

#include <bit>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief A float as the bfloat16 that it rounds to (to nearest, ties to even) and what is missing
/// to it.
///
/// As integers, a float differs from its rounded upper half by -2^15 to 2^15, both ends included:
/// where the half is even, a tie on either side rounds to it. These are 65537 differences, one more
/// than 16 bits can tell apart, so no encoding of 16 bits beside the half is exact (those that are
/// in use round ties up instead, which is another bfloat16 in one case of 2^17). Here the
/// difference is a number in two's complement of 17 bits: `remainder` holds the lower 16, and the
/// sign, which says that the half was rounded up, is kept apart.
struct SplitFloat {
    bfloat16 half;               ///< the float rounded to nearest, ties to even
    std::uint16_t remainder = 0; ///< the lower 16 bits of float minus half, as integers
    bool is_rounded_up = false;  ///< that difference is negative
};

/// @brief Exact for every float but a NaN, which becomes the quiet NaN of its upper half.
constexpr SplitFloat split(float value) noexcept {
    bfloat16 const half = from_float<bfloat16>(value);
    if (value != value) {
        return {half, 0, false};
    }
    auto const bits = std::bit_cast<std::uint32_t>(value);
    return {half, static_cast<std::uint16_t>(bits & 0xffffU), half.bits != bits >> 16U};
}

/// @brief The float that was split.
constexpr float join(SplitFloat parts) noexcept {
    std::uint32_t const bits = static_cast<std::uint32_t>(parts.half.bits) << 16U | parts.remainder;
    return std::bit_cast<float>(bits - (parts.is_rounded_up ? 0x10000U : 0U));
}

} // namespace ZERO_NAMESPACE
