#pragma once

// The numbers of the oracle: rounding to storage types and codes, products, sums and powers.
// All numbers are floats, also those that the library stores in 16 bits. `rounded` marks each place
// where the library rounds to a storage type.

#include "configuration.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/ops/block_codecs.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace zero::test::oracle {

using Values = std::vector<float>;

inline float rounded(Number type, float value) {
    switch (type) {
    case Number::bfloat16: return to_float(from_float<bfloat16>(value));
    case Number::float16: return to_float(from_float<float16>(value));
    default: return value;
    }
}

/// Replaces every NaN by the one that the library's arithmetic returns.
inline float canonical(float value) {
    return value == value ? value : std::bit_cast<float>(std::uint32_t{0x7fc00000});
}

/// Returns a + b or a * b, rounded once. The volatile variable prevents the compiler from fusing
/// the two.
inline float plus(float a, float b) {
    float const volatile sum = a + b;
    return canonical(sum);
}
inline float times(float a, float b) {
    float const volatile product = a * b;
    return canonical(product);
}
inline double times(double a, double b) {
    double const volatile product = a * b;
    return product;
}

/// Returns base^exponent by repeated squaring, from the lowest bit of the exponent.
inline double power(double base, std::uint64_t exponent) {
    double result = 1.0;
    while (exponent > 0) {
        if (exponent % 2 == 1) {
            result = times(result, base);
        }
        base = times(base, base);
        exponent /= 2;
    }
    return result;
}

/// An exact sum of squares: an integer of 704 bits that counts multiples of 2^-298, the square of
/// the smallest float.
class ExactSum {
public:
    void add(double value) {
        int exponent = 0;
        double const fraction =
            // value = fraction * 2^exponent, 0.5 <= fraction < 1
            std::frexp(value, &exponent);
        auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
        int position = exponent - 53 + 298;
        for (; position < 0; ++position) {
            mantissa /= 2;
        }
        std::size_t word = static_cast<std::size_t>(position) / 32;
        unsigned const shift = static_cast<unsigned>(position) % 32;
        std::array<std::uint64_t, 3> const parts{(mantissa << shift) & 0xffffffffU,
                                                 (mantissa >> (32 - shift)) & 0xffffffffU,
                                                 (mantissa >> 32U) >> (32 - shift)};
        std::uint64_t carry = 0;
        for (std::size_t part = 0; part < parts.size() || carry != 0; ++part, ++word) {
            carry += _words[word] + (part < parts.size() ? parts[part] : 0);
            _words[word] = static_cast<std::uint32_t>(carry);
            carry >>= 32U;
        }
    }

    /// Converts the sum to double in the documented way: a Horner scheme over its digits of 28
    /// bits, from the lowest to the highest, rounded after each digit.
    [[nodiscard]] double value() const {
        double value = 0.0;
        for (int digit = 0; digit < 21; ++digit) {
            std::uint32_t bits = 0;
            for (int bit = 27; bit >= 0; --bit) {
                int const position = digit * 28 + bit;
                bits = bits * 2
                       + ((_words[static_cast<std::size_t>(position) / 32]
                           >> (static_cast<unsigned>(position) % 32))
                          & 1U);
            }
            value = std::fma(value, 0x1.0p-28, static_cast<double>(bits));
        }
        return std::ldexp(value, 262);
    }

private:
    std::array<std::uint32_t, 22> _words{};
};

/// Replaces a block by what is decoded of its code.
template <class C>
void through(float (&block)[64]) {
    std::array<std::uint8_t, C::bytes_per_block> bytes;
    C::encode(block, bytes.data());
    C::decode(bytes.data(), block);
}

/// Returns what ranks read of values that travel in codes, or without one in a number type, to
/// which what is decoded is rounded as well.
inline Values read_of(Code code, Number type, Values values) {
    for (float& value : values) {
        value = code == Code::plain ? rounded(type, value) : value;
    }
    for (std::size_t begin = 0; code != Code::plain && begin < values.size(); begin += 64) {
        std::size_t const end = std::min(begin + 64, values.size());
        float block[64] = {};
        for (std::size_t i = begin; i < end; ++i) {
            block[i - begin] = values[i];
        }
        code == Code::int8 ? through<Int8Blocks>(block) : through<Int4Blocks>(block);
        for (std::size_t i = begin; i < end; ++i) {
            values[i] = rounded(type, canonical(block[i - begin]));
        }
    }
    return values;
}

/// Returns what is decoded of a rank's gradient and its errors, which become what was lost.
inline Values in_codes(Configuration const& c, Values values, Values& errors) {
    for (std::size_t begin = 0; begin < values.size(); begin += 64) {
        std::size_t const count = std::min<std::size_t>(64, values.size() - begin);
        float sent[64] = {};
        for (std::size_t i = 0; i < count; ++i) {
            float const value = values[begin + i];
            sent[i] = c.errors == Errors::none ? value : plus(value, errors[begin + i]);
        }
        bool const is_finite =
            std::all_of(sent, sent + count, [](float value) { return std::isfinite(value); });
        float decoded[64];
        std::copy(sent, sent + 64, decoded);
        c.code == Code::int8 ? through<Int8Blocks>(decoded) : through<Int4Blocks>(decoded);
        float lost[64] = {};
        for (std::size_t i = 0; i < count; ++i) {
            values[begin + i] = canonical(decoded[i]);
            if (is_finite) {
                lost[i] = std::fma(c.beta, errors[begin + i],
                                   times(1.0F - c.beta, plus(sent[i], -decoded[i])));
            }
        }
        if (c.errors == Errors::eight_bits) {
            through<Int8Blocks>(lost);
        }
        std::copy(lost, lost + count, errors.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    return values;
}

/// Returns the sum over ranks of gradients in codes, in float in rank order.
/// @param errors of these ranks
inline Values sum_in_codes(Configuration const& c, std::vector<Values> const& of_rank,
                           Values* errors) {
    Values sums;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
        Values const decoded = in_codes(c, of_rank[rank], errors[rank]);
        sums.resize(decoded.size());
        for (std::size_t i = 0; i < decoded.size(); ++i) {
            sums[i] = rank == 0 ? decoded[i] : plus(sums[i], decoded[i]);
        }
    }
    return sums;
}

/// @name Storage of weights and states
/// @{

inline std::uint64_t rounding_seed(Configuration const& c) {
    return mixed(c.seed + c.index);
}

/// Returns the key of the random numbers of a step, which SplitMix64 generates. Only weights have a
/// seed.
inline std::uint64_t rounding_key(Configuration const& c, std::uint64_t count) {
    std::uint64_t const seed = c.types().master == Master::stochastic ? rounding_seed(c) : 0;
    return mixed(mixed(seed)
                 + (count - 1) * 0x9e3779b97f4a7c15U); // `mixed` adds the constant once more
}

/// Returns 32 random bits for one element of the model: two rounds of "lowbias32" hash the element
/// with the key.
inline std::uint32_t rounding_bits(std::uint64_t key, std::uint64_t element) {
    auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x & 0xffffffffU); };
    auto const mix = [&](std::uint32_t x) {
        x = (x ^ (x >> 16U)) * 0x7feb352dU;
        x = (x ^ (x >> 15U)) * 0x846ca68bU;
        return x ^ (x >> 16U);
    };
    return mix(mix(low(element) ^ low(key))
               ^ (low(key >> 32U) + low(element >> 32U) * 0x9e3779b9U));
}

/// Rounds a value to bfloat16 stochastically: away from zero if the random bits plus the bits that
/// are cut off carry, otherwise towards zero.
inline float rounded_stochastically(float value, std::uint32_t random) {
    if (!(std::abs(value) <= 0x1.fep127F)) {
        return rounded(Number::bfloat16, value);
    }
    auto const bits = std::bit_cast<std::uint32_t>(value);
    bool const is_away = (bits & 0xffffU) + (random >> 16U) > 0xffffU;
    return std::bit_cast<float>((bits & 0xffff0000U) + (is_away ? 0x10000U : 0U));
}

/// Rounds a magnitude below 2^15 to float16: away from zero with the probability of its distance
/// from the lower neighbour, of which 13 bits count, or 32 below the smallest normal number.
inline float rounded_to_half(float value, std::uint32_t random) {
    if (!std::isfinite(value) || value == 0.0F) {
        return value;
    }
    auto const magnitude = static_cast<double>(std::abs(value));
    bool const is_normal = magnitude >= 0x1p-14;
    double const unit = is_normal ? std::ldexp(1.0, std::ilogb(magnitude) - 10) : 0x1p-24;
    double const lower = std::floor(magnitude / unit);
    double const distance = magnitude / unit - lower;
    bool const is_away =
        is_normal ? times(distance, 0x1p13) + static_cast<double>(random >> 19U) >= 0x1p13
                  : static_cast<double>(random) < std::floor(times(distance, 0x1p32));
    return std::copysign(static_cast<float>((lower + (is_away ? 1.0 : 0.0)) * unit), value);
}

/// Rounds a block of up to 64 states to float16 numbers times a power of two. The scale brings the
/// largest finite magnitude into [2^14, 2^15).
/// @param random returns the random bits of an element of the block; empty: to nearest
inline void round_block(float* values, std::size_t count,
                        std::function<std::uint32_t(std::size_t)> const& random) {
    float largest = 0.0F;
    for (std::size_t i = 0; i < count; ++i) {
        largest = std::isfinite(values[i]) ? std::max(largest, std::abs(values[i])) : largest;
    }
    int exponent = 0;
    std::frexp(largest, &exponent); // largest < 2^exponent
    float const scale = largest == 0.0F ? 1.0F : std::ldexp(1.0F, std::max(exponent - 15, -126));
    for (std::size_t i = 0; i < count; ++i) {
        bool const vanishes = values[i] != 0.0F && std::abs(values[i] / scale) < 0x1p-24F;
        float const scaled = values[i] / scale;
        values[i] = scale
                    * (vanishes ? std::copysign(0x1p-24F, values[i])
                       : random ? rounded_to_half(scaled, random(i))
                                : rounded(Number::float16, scaled));
    }
}

/// Rounds a block of up to 64 states to powers of integers times a scale: (k / 128)^4 with a sign,
/// or (k / 256)^8 if no state of the block is negative. Each operation is rounded to float.
inline void round_block_to_powers(float* values, std::size_t count,
                                  std::function<std::uint32_t(std::size_t)> const& random) {
    float largest = 0.0F;
    bool is_signed = false;
    for (std::size_t i = 0; i < count; ++i) {
        largest = std::isfinite(values[i]) ? std::max(largest, std::abs(values[i])) : largest;
        is_signed = is_signed || values[i] < 0.0F;
    }
    auto const power = [is_signed](float k) {
        float const square =
            times(k / (is_signed ? 128.0F : 256.0F), k / (is_signed ? 128.0F : 256.0F));
        float const fourth = times(square, square);
        return is_signed ? fourth : times(fourth, fourth);
    };
    double const top = is_signed ? std::pow(128.0 / 127.0, 4) : std::pow(256.0 / 254.0, 8);
    float const wanted = times(largest, static_cast<float>(top));
    float const scale = std::max(std::min(wanted, std::numeric_limits<float>::max()), 0x1p-126F);
    float const inverse = 1.0F / scale;
    for (std::size_t i = 0; i < count; ++i) {
        float const size = times(std::abs(values[i]), inverse);
        if (!std::isfinite(values[i])) {
            values[i] = canonical(std::numeric_limits<float>::quiet_NaN());
            continue;
        }
        float const fourth = std::sqrt(std::sqrt(size));
        float const lower =
            std::floor(times(is_signed ? fourth : std::sqrt(fourth), is_signed ? 128.0F : 256.0F));
        float const step = plus(power(lower + 1.0F), -power(lower));
        float const most = is_signed ? 127.0F : 254.0F;
        float place = std::min(plus(lower, plus(size, -power(lower)) / step), most);
        place = values[i] == 0.0F ? 0.0F : std::max(place, 1.0F);
        float const stored = is_signed ? std::copysign(place, values[i]) : plus(place, -128.0F);
        float const below = std::floor(plus(stored, 128.0F)) - 128.0F;
        bool const is_up = static_cast<float>(random(i) >> 8U) * 0x1p-24F < plus(stored, -below);
        float const k = below + (is_up ? 1.0F : 0.0F) + (is_signed ? 0.0F : 128.0F);
        float const value = times(power(k), scale);
        values[i] = k < 0.0F ? -value : value;
    }
}

/// Rounds the moments of a parameter. The second moments take the random bits of the first ones
/// with the halves exchanged.
/// @param key of the step, @param first number of the parameter's first element in the model
inline void round_states(States kept, std::size_t state, std::uint64_t key, std::uint64_t first,
                         Values& values) {
    std::uint64_t const own_key = mixed(mixed(key));
    auto const random = [&](std::size_t i) {
        std::uint32_t const bits = rounding_bits(own_key, first + i);
        return state == 0 ? bits : bits / 0x10000U + bits % 0x10000U * 0x10000U;
    };
    bool const is_scaled = kept != States::floats && kept != States::bfloat16;
    for (std::size_t begin = 0; is_scaled && begin < values.size(); begin += 64) {
        std::function<std::uint32_t(std::size_t)> of_block;
        if (kept != States::scaled_to_nearest) {
            of_block = [&random, begin](std::size_t i) { return random(begin + i); };
        }
        auto* const round = kept == States::eight_bits ? round_block_to_powers : round_block;
        round(values.data() + begin, std::min<std::size_t>(64, values.size() - begin), of_block);
    }
    for (std::size_t i = 0; kept == States::bfloat16 && i < values.size(); ++i) {
        values[i] = rounded_stochastically(values[i], random(i));
    }
}

/// @}

} // namespace zero::test::oracle
