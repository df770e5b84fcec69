#pragma once

#include "../core/convert.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"
#include "arithmetic.hpp"
#include "block_scale.hpp"
#include "number.hpp"

#include <cstdint>
#include <type_traits>

/// @file
/// @brief Optimizer states in 8 bits: powers of an integer, times a scale for each block of 64.
///
/// A code k from -127 to 127 is the value sign(k) (k / 128)^4 scale. In a block without negative
/// numbers, as second moments are, codes are k = 0 to 254, and the value is (k / 256)^8 scale; the
/// sign of the stored scale says so. Neighbouring codes near the largest number of a block differ
/// by 3 %, at 1e-2 (signed) or 1e-4 (not) of it by 10 %, and the range is 127^4 or 254^8.
///
/// The functions are templates over a number, so the host's loops and the kernels compute the same
/// bits. They are exact up to the roundings of `ops/arithmetic.hpp`.

namespace ZERO_NAMESPACE::ops::detail {

/// @brief The bounds of the codes of a block.
struct PowerCodes {
    float levels;  ///< the code of `scale` itself, which is not used
    float largest; ///< the largest code
    float nan;     ///< the code of NaN and infinities
    float offset;  ///< subtracted from a code that is stored
};

ZERO_HOST_DEVICE constexpr PowerCodes power_codes(bool is_signed) noexcept {
    return is_signed ? PowerCodes{128.0F, 127.0F, -128.0F, 0.0F}
                     : PowerCodes{256.0F, 254.0F, 255.0F, 128.0F};
}

/// @brief (k / levels)^4, or ^8.
template <Number F>
[[gnu::always_inline]] ZERO_HOST_DEVICE inline F power(F const& k, bool is_signed) noexcept {
    F const part = mul(k, is_signed ? 0x1p-7F : 0x1p-8F);
    F const square = mul(part, part);
    F const fourth = mul(square, square);
    return is_signed ? fourth : mul(fourth, fourth);
}

/// @brief The integer below a number from 0 to 2^22.
template <Number F>
[[gnu::always_inline]] ZERO_HOST_DEVICE inline F integer_below(F const& x) noexcept {
    F const nearest = sub(add(x, 0x1p23F), 0x1p23F); // its last bit is worth 1
    return select(less(x, nearest), sub(nearest, 1.0F), nearest);
}

} // namespace ZERO_NAMESPACE::ops::detail

namespace ZERO_NAMESPACE::ops {

/// @brief Whether the codes of a block are signed.
/// @param scale as it is stored
ZERO_HOST_DEVICE constexpr bool has_signed_codes(float scale) noexcept {
    return (__builtin_bit_cast(std::uint32_t, scale) & 0x80000000U) == 0;
}

/// @brief Returns the scale of a block of states in type S, as it is stored.
/// @param largest the largest finite magnitude of the block
/// @param is_signed whether a number of the block is below 0; read for power8
template <StateStorageType S>
ZERO_HOST_DEVICE inline float state_scale(float largest, bool is_signed) noexcept {
    if constexpr (!std::is_same_v<S, power8>) {
        return block_scale(largest);
    } else {
        // (128 / 127)^4 and (256 / 254)^8
        float const scale = mul(largest, is_signed ? 0x1.0828a2p+0F : 0x1.1093d6p+0F);
        float const at_most = scale < 0x1.fffffep127F ? scale : 0x1.fffffep127F;
        float const at_least = at_most < 0x1p-126F ? 0x1p-126F : at_most; // its inverse is finite
        return is_signed ? at_least : -at_least;
    }
}

/// @brief Returns the factor by which states are multiplied before they are stored.
template <StateStorageType S>
ZERO_HOST_DEVICE inline float inverse_state_scale(float scale) noexcept {
    if constexpr (!std::is_same_v<S, power8>) {
        return inverse_block_scale(scale);
    } else {
        return div(1.0F, has_signed_codes(scale) ? scale : -scale);
    }
}

/// @brief Returns the place of a state among the codes of its block: a code, or a number between
/// two, so that rounding it stochastically keeps the expected value. A state that is not zero is
/// at least as far from 0 as the least code.
/// @param inverse `inverse_state_scale<power8>` of the block
template <Number F>
[[gnu::always_inline]] ZERO_HOST_DEVICE inline F power_place(F const& value, float inverse,
                                                             bool is_signed) noexcept {
    auto const codes = detail::power_codes(is_signed);
    F const zero(0.0F);
    auto const is_negative = less(value, zero);
    F const size = select(is_negative, sub(zero, value), value);
    F const magnitude = mul(size, inverse);
    F const fourth = root(root(magnitude));
    F const lower = detail::integer_below(mul(is_signed ? fourth : root(fourth), codes.levels));
    F const from = detail::power(lower, is_signed);
    F const step = sub(detail::power(add(lower, 1.0F), is_signed), from);
    F place = add(lower, div(sub(magnitude, from), step));
    place = select(less(codes.largest, place), F(codes.largest), place);
    auto const is_zero = less_equal(size, zero);
    F const least = select(is_zero, zero, F(1.0F));
    place = select(less(place, least), least, place);
    place = select(is_negative, sub(zero, place), place);
    place = select(less_equal(magnitude, F(1.0F)), place, F(codes.nan));
    return sub(place, codes.offset);
}

/// @brief Returns the code of a place: the one below it, or the next with the probability of the
/// distance. A place that is a code is unchanged.
/// @param random 32 uniformly distributed bits, of which 24 count
ZERO_HOST_DEVICE inline power8 round_place(float place, std::uint32_t random) noexcept {
    auto const shifted = static_cast<std::int32_t>(add(place, 128.0F)); // in [0, 255]
    float const rest = sub(place, static_cast<float>(shifted - 128));
    bool const is_up = mul(static_cast<float>(random >> 8U), 0x1p-24F) < rest;
    return static_cast<power8>(shifted - 128 + (is_up ? 1 : 0));
}

/// @brief Returns the value of a code.
/// @param code as a number
/// @param scale as it is stored
template <Number F>
[[gnu::always_inline]] ZERO_HOST_DEVICE inline F power_value(F const& code, float scale) noexcept {
    bool const is_signed = has_signed_codes(scale);
    auto const codes = detail::power_codes(is_signed);
    F const zero(0.0F);
    F const k = add(code, codes.offset);
    F const magnitude = mul(detail::power(k, is_signed), is_signed ? scale : -scale);
    F const value = select(less(k, zero), sub(zero, magnitude), magnitude);
    auto const is_nan = is_signed ? less_equal(k, F(codes.nan)) : less_equal(F(codes.nan), k);
    return select(is_nan, F(__builtin_bit_cast(float, 0x7fc00000U)), value);
}

/// @brief Returns the value of a stored state in a block with a scale.
template <StateStorageType S>
ZERO_HOST_DEVICE inline float state_value(S stored, float scale) noexcept {
    if constexpr (std::is_same_v<S, power8>) {
        return power_value(static_cast<float>(static_cast<int>(stored)), scale);
    } else {
        return mul(to_float(stored), scale);
    }
}

} // namespace ZERO_NAMESPACE::ops
