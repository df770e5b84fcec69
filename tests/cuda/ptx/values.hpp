#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

// The numbers of PTX: their storage in registers, the one NaN that a device returns, and the
// 16-bit types.

namespace zero::test::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

/// How a run differs from another one of the same program.
struct Settings {
    u64 seed = 0; ///< 0: blocks and warps in order, the lanes that are least far first
    bool checks_races = true;
    bool has_any_nan = false; ///< a NaN result has random bits, so that a use of them shows
};
inline Settings settings;

/// The unsigned integer of the size of a type.
template <class T>
using Bits = std::conditional_t<
    sizeof(T) == 1, u8,
    std::conditional_t<sizeof(T) == 2, u16, std::conditional_t<sizeof(T) == 4, u32, u64>>>;

/// The storage of a type in a register.
template <class T>
using Slot = std::conditional_t<sizeof(T) <= 4, u32, u64>;

inline u64 random_nan_bits() {
    static u64 state = 1;
    return state = state * 6364136223846793005U + 1442695040888963407U;
}

/// Replaces a NaN by the one that arithmetic returns on a device.
inline float canonical(float x) {
    if (x == x) {
        return x;
    }
    u32 const bits = settings.has_any_nan ? static_cast<u32>(random_nan_bits() >> 32U) | 0x7fc00000U
                                          : 0x7fffffffU;
    return std::bit_cast<float>(bits);
}
inline double canonical(double x) {
    if (x == x) {
        return x;
    }
    return std::bit_cast<double>(settings.has_any_nan ? random_nan_bits() | 0x7ff8000000000000U
                                                      : 0xfff8000000000000U);
}

/// Replaces a subnormal number by zero, as instructions with .ftz do.
inline float flushed(float x) {
    return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}
inline double flushed(double x) {
    return x;
}

inline float float_of_half(u16 half) {
    u32 const sign = (half & 0x8000U) << 16U;
    u32 const exponent = half >> 10U & 31U;
    u32 const fraction = half & 1023U;
    if (exponent == 31) {
        return fraction != 0 ? canonical(std::bit_cast<float>(0x7fffffffU))
                             : std::bit_cast<float>(sign | 0x7f800000U);
    }
    if (exponent == 0) {
        return std::bit_cast<float>(std::bit_cast<u32>(static_cast<float>(fraction) * 0x1p-24F)
                                    | sign);
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
}

inline float float_of_bfloat(u16 bits) {
    return canonical(std::bit_cast<float>(static_cast<u32>(bits) << 16U));
}

/// A binary format of 16 bits.
struct Format {
    int fraction_bits;
    int least_exponent; ///< of normal numbers
    int most_exponent;
    u16 infinity;
};
inline constexpr Format half_format{10, -14, 15, 0x7c00};
inline constexpr Format bfloat_format{7, -126, 127, 0x7f80};

/// Rounds to the nearest number of a format, ties to even.
inline u16 rounded_to(Format const& format, float value) {
    if (value != value) {
        return 0x7fff;
    }
    u16 const sign = std::signbit(value) ? 0x8000 : 0;
    double const x = std::fabs(static_cast<double>(value));
    if (std::isinf(x)) {
        return static_cast<u16>(sign | format.infinity);
    }
    if (x == 0) {
        return sign;
    }
    int exponent = std::max(std::ilogb(x), format.least_exponent);
    double const units = std::nearbyint(std::ldexp(x, format.fraction_bits - exponent));
    double const rounded = std::ldexp(units, exponent - format.fraction_bits);
    if (rounded >= std::ldexp(1.0, format.most_exponent + 1)) {
        return static_cast<u16>(sign | format.infinity);
    }
    if (rounded == 0) {
        return sign;
    }
    exponent = std::ilogb(rounded); // rounding may have reached the next power of two
    if (exponent < format.least_exponent) {
        return static_cast<u16>(
            sign
            | static_cast<u16>(std::ldexp(rounded, format.fraction_bits - format.least_exponent)));
    }
    auto const significand = static_cast<u32>(std::ldexp(rounded, format.fraction_bits - exponent));
    u32 const fraction = significand & ((1U << format.fraction_bits) - 1);
    auto const biased = static_cast<u32>(exponent - format.least_exponent + 1);
    return static_cast<u16>(sign | biased << format.fraction_bits | fraction);
}

} // namespace zero::test::ptx
