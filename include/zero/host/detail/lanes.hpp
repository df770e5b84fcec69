#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/split_float.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_scale.hpp"
#include "../../ops/counter_random.hpp"
#include "../../ops/detail/uncontracted.hpp"
#include "../../ops/number.hpp"
#include "../../ops/power_codes.hpp"
#include "../../ops/stochastic_round.hpp"
#include "../../ops/symmetric_codes.hpp"
#include "../instruction_set.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Unrolls the loop that follows, whose arrays of packs then are registers. nvcc knows no such
/// pragma.
#if defined(__CUDACC__)
#define ZERO_HOST_UNROLL(count)
#else
#define ZERO_HOST_PRAGMA(text) _Pragma(#text)
#define ZERO_HOST_UNROLL(count) ZERO_HOST_PRAGMA(GCC unroll count)
#endif

namespace ZERO_NAMESPACE::host::detail {

/// The NaN as which every NaN result of arithmetic is stored. Which of two NaNs an instruction
/// returns depends on the order of its operands, which the compiler chooses; the sign of a new NaN
/// depends on the machine.
inline constexpr std::uint32_t canonical_nan = 0x7fc00000U;

/// A pack of floats for one instruction set: the number type of the host loops. The primary
/// template is the portable baseline.
template <InstructionSet Set>
struct Lanes {
    static_assert(Set == InstructionSet::baseline);
    static constexpr std::size_t size = 4;
    static constexpr bool fuses = false; ///< whether `fma` is one instruction

    struct Mask {
        using Number = Lanes;
        bool lane[size];
    };

    /// `ops::random_bits` of consecutive counters.
    struct RandomBits {
        RandomBits(std::uint64_t key, std::uint64_t counter) noexcept {
            for (std::size_t i = 0; i < size; ++i) {
                bits[i] = ops::random_bits(key, counter + i);
            }
        }
        void swap_halves() noexcept {
            for (auto& random : bits) {
                random = ops::swapped_halves(random);
            }
        }
        std::uint32_t bits[size];
    };

    Lanes() noexcept = default;
    Lanes(float value) noexcept { // NOLINT(google-explicit-constructor): functors mix
                                  // hyper-parameters and packs
        for (auto& x : _lane) {
            x = value;
        }
    }

    template <StorageType T>
    static Lanes load(T const* from) noexcept {
        return each([&](std::size_t i) { return to_float(from[i]); });
    }

    template <StorageType T>
    void store(T* to) const noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = from_float<T>(_lane[i]);
        }
    }

    /// `store` for a pack whose only NaN is the canonical one.
    template <StorageType T>
    void store_number(T* to) const noexcept {
        store(to);
    }

    /// Stores this pack and the next one. Other instruction sets bypass the caches if `past_caches`
    /// and are faster if `are_numbers`, which means that the only NaN is the canonical one.
    template <bool past_caches, bool are_numbers, StorageType T>
    void store_with(Lanes const& next, T* to) const noexcept {
        store(to);
        next.store(to + size);
    }

    /// A plain store. Other instruction sets bypass the caches.
    template <StorageType T>
    void stream_number(T* to) const noexcept {
        store(to);
    }
    static void finish_streams() noexcept {}

    /// No-op. Other instruction sets prefetch.
    template <StorageType T>
    static void prefetch(T const* /*from*/) noexcept {}

    /// Loads floats that are stored in parts; bit i of `rounded_up` belongs to lane i.
    static Lanes join(bfloat16 const* halves, std::uint16_t const* remainders,
                      unsigned rounded_up) noexcept {
        return each([&](std::size_t i) {
            return zero::join({halves[i], remainders[i], (rounded_up >> i & 1U) != 0});
        });
    }

    /// Stores, in parts, a pack whose only NaN is the canonical one. @return the bits of
    /// `rounded_up`
    unsigned split(bfloat16* halves, std::uint16_t* remainders) const noexcept {
        unsigned rounded_up = 0;
        for (std::size_t i = 0; i < size; ++i) {
            SplitFloat const parts = zero::split(_lane[i]);
            halves[i] = parts.half;
            remainders[i] = parts.remainder;
            rounded_up |= (parts.is_rounded_up ? 1U : 0U) << i;
        }
        return rounded_up;
    }

    /// Returns the larger of a finite magnitude and `ops::finite_magnitude(value)`, per element.
    static Lanes larger_magnitude(Lanes const& magnitude, Lanes const& value) noexcept {
        return each([&](std::size_t i) {
            float const other = ops::finite_magnitude(value._lane[i]);
            return magnitude._lane[i] < other ? other : magnitude._lane[i];
        });
    }

    /// Returns the largest magnitude of each of `size` blocks of 64 elements. NaN is above
    /// infinity.
    template <StorageType T>
    static Lanes largest_of_blocks(T const* from) noexcept {
        return each([&](std::size_t block) {
            std::uint32_t result = 0;
            for (std::size_t i = 0; i < ops::scaled_block_elements; ++i) {
                result = ops::larger_magnitude_bits(
                    result, to_float(from[block * ops::scaled_block_elements + i]));
            }
            return std::bit_cast<float>(result);
        });
    }

    /// `ops::code_scale` per element.
    static Lanes code_scales(Lanes const& largest, float levels) noexcept {
        return each([&](std::size_t i) { return ops::code_scale(largest._lane[i], levels); });
    }

    /// Rounds 32 numbers to integers of 8 bits. @tparam alternate false: there is no
    /// `load_alternate`
    template <bool alternate>
    static void store_codes(Lanes const (&numbers)[32 / size], std::uint8_t* to) noexcept {
        for (std::size_t i = 0; i < 32; ++i) {
            to[i] =
                static_cast<std::uint8_t>(ops::nearest_integer(numbers[i / size]._lane[i % size]));
        }
    }

    /// Rounds 32 numbers to integers in the lower halves of bytes, and 32 in the upper halves.
    template <bool alternate>
    static void store_codes(Lanes const (&low)[32 / size], Lanes const (&high)[32 / size],
                            std::uint8_t* to) noexcept {
        for (std::size_t i = 0; i < 32; ++i) {
            auto const lower = ops::nearest_integer(low[i / size]._lane[i % size]);
            auto const upper = ops::nearest_integer(high[i / size]._lane[i % size]);
            to[i] = static_cast<std::uint8_t>((lower & 0xf) | static_cast<int>(upper << 4));
        }
    }

    /// Loads integers of 8 bits.
    static Lanes load_codes(std::uint8_t const* from) noexcept {
        return each([&](std::size_t i) { return static_cast<float>(std::int8_t(from[i])); });
    }

    /// Loads integers of 4 bits from the lower and the upper halves of bytes.
    static void load_codes(std::uint8_t const* from, Lanes& low, Lanes& high) noexcept {
        low = each([&](std::size_t i) {
            return static_cast<float>(std::int8_t(std::uint8_t(from[i] << 4)) >> 4);
        });
        high = each([&](std::size_t i) { return static_cast<float>(std::int8_t(from[i]) >> 4); });
    }

    /// `ops::keep_from_zero` per element.
    static Lanes keep_from_zero(Lanes const& scaled, Lanes const& value) noexcept {
        return each(
            [&](std::size_t i) { return ops::keep_from_zero(scaled._lane[i], value._lane[i]); });
    }

    /// Rounds a pack whose only NaN is the canonical one stochastically, and stores it.
    template <StorageType T>
    void store_stochastic(T* to, RandomBits const& random) const noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = ops::round_stochastically<T>(_lane[i], random.bits[i]);
        }
    }

    /// `ops::round_place` per element.
    void store_stochastic(power8* to, RandomBits const& random) const noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = ops::round_place(_lane[i], random.bits[i]);
        }
    }

    Lanes with_canonical_nan() const noexcept {
        return each([&](std::size_t i) {
            return _lane[i] != _lane[i] ? std::bit_cast<float>(canonical_nan) : _lane[i];
        });
    }

    /// Returns the values of a pack whose only NaN is the canonical one, rounded to `T`.
    template <StorageType T>
    Lanes rounded_to() const noexcept {
        return each([&](std::size_t i) { return to_float(from_float<T>(_lane[i])); });
    }

    static Lanes fma(Lanes const& a, Lanes const& b, Lanes const& c) noexcept {
        return each([&](std::size_t i) { return ops::fma(a._lane[i], b._lane[i], c._lane[i]); });
    }
    static Lanes mul(Lanes const& a, Lanes const& b) noexcept {
        return each([&](std::size_t i) {
            return ops::detail::uncontracted_in_unit(a._lane[i] * b._lane[i]);
        });
    }
    static Lanes add(Lanes const& a, Lanes const& b) noexcept {
        return each([&](std::size_t i) { return ops::add(a._lane[i], b._lane[i]); });
    }
    static Lanes sub(Lanes const& a, Lanes const& b) noexcept {
        return each([&](std::size_t i) { return ops::sub(a._lane[i], b._lane[i]); });
    }
    static Lanes div(Lanes const& a, Lanes const& b) noexcept {
        return each([&](std::size_t i) { return ops::div(a._lane[i], b._lane[i]); });
    }
    static Lanes root(Lanes const& a) noexcept {
        return each([&](std::size_t i) { return ops::root(a._lane[i]); });
    }
    static Mask less(Lanes const& a, Lanes const& b) noexcept {
        Mask result;
        for (std::size_t i = 0; i < size; ++i) {
            result.lane[i] = a._lane[i] < b._lane[i];
        }
        return result;
    }
    static Mask less_equal(Lanes const& a, Lanes const& b) noexcept {
        Mask result;
        for (std::size_t i = 0; i < size; ++i) {
            result.lane[i] = a._lane[i] <= b._lane[i];
        }
        return result;
    }
    static Lanes select(Mask const& mask, Lanes const& a, Lanes const& b) noexcept {
        return each([&](std::size_t i) { return mask.lane[i] ? a._lane[i] : b._lane[i]; });
    }

    template <class Functor, class... Arguments>
    static void call(Functor const& functor, Arguments&... arguments) noexcept {
        functor(arguments...);
    }

private:
    template <class Function>
    static Lanes each(Function const& function) noexcept {
        Lanes result;
        for (std::size_t i = 0; i < size; ++i) {
            result._lane[i] = function(i);
        }
        return result;
    }

    float _lane[size];
};

static_assert(ops::Number<Lanes<InstructionSet::baseline>>);

/// Whether elements are loaded in packs of those of even and of odd index, which takes no shuffle.
template <class F, class T>
inline constexpr bool loads_alternate =
    std::is_same_v<T, bfloat16> && requires(F& pack) { F::put_in_order(pack, pack); };

} // namespace ZERO_NAMESPACE::host::detail
