#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/exact_sum.hpp"
#include "cast_loops.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// Adds powers of magnitudes, |x| or x^2, to an exact sum. Used where vectors do not serve: by the
/// baseline, and for numbers too far apart for `AnchoredSquares`.
///
/// The significand of an element is an integer, and so is its square. There is one sum per
/// exponent, which takes one integer addition per element; only the sums are then added to the
/// digits of `Inspection`. Two tables alternate, because consecutive elements often have the same
/// exponent and an addition would wait for the one before.
template <int power>
class ExponentBins {
    static_assert(power == 1 || power == 2);

public:
    /// Adds the finite elements of a range to `result` and counts the others.
    template <StorageType T>
    static void add(T const* values, std::size_t n, std::int64_t first_index,
                    ops::Inspection& result) noexcept {
        if (n < few) {
            for (std::size_t i = 0; i < n; ++i) {
                add_one(Parts(values[i]), first_index + static_cast<std::int64_t>(i), result);
            }
            return;
        }
        ExponentBins bins;
        for (std::size_t begin = 0; begin < n; begin += capacity) {
            std::size_t const count = n - begin < capacity ? n - begin : capacity;
            bins.add_chunk(values + begin, count);
            if (bins.flush(result)) {
                count_non_finite(values + begin, count,
                                 first_index + static_cast<std::int64_t>(begin), result);
            }
            result.carry(); // so that a chunk counts as one write
        }
    }

private:
    static constexpr std::size_t few =
        128; ///< for fewer elements the tables cost more than they save
    static constexpr std::size_t tables = 2;
    static constexpr std::size_t exponents = 256;
    static constexpr std::size_t non_finite = 255; ///< exponent field of infinity and NaN
    static constexpr std::size_t capacity =
        16384; ///< elements between two flushes: 2^14 integers below 2^48 stay below 2^63

    /// A magnitude as integer * 2^(exponent - 150).
    struct Parts {
        template <StorageType T>
        explicit Parts(T value) noexcept {
            auto const bits = std::bit_cast<std::uint32_t>(to_float(value));
            exponent = bits >> 23U & 0xffU;
            integer = (bits & 0x7fffffU) | static_cast<std::uint64_t>(exponent != 0) << 23U;
        }
        [[nodiscard]] std::uint64_t to_power() const noexcept {
            return power == 2 ? integer * integer : integer;
        }

        std::size_t exponent;
        std::uint64_t integer;
    };

    /// The exponent of the digits that an exponent field stands for.
    static int digit_exponent(std::size_t exponent) noexcept {
        return 1075 + power * (static_cast<int>(exponent == 0 ? 1 : exponent) - 150);
    }

    static void add_one(Parts const& parts, std::int64_t index, ops::Inspection& result) noexcept {
        if (parts.exponent == non_finite) {
            result.add_non_finite(index);
        } else {
            result.add_significands(parts.to_power(), digit_exponent(parts.exponent));
        }
    }

    template <StorageType T>
    void add_chunk(T const* values, std::size_t n) noexcept {
        std::size_t const whole = n - n % tables;
        for (std::size_t i = 0; i < whole; i += tables) {
            add_to(_sums[0], Parts(values[i]));
            add_to(_sums[1], Parts(values[i + 1]));
        }
        for (std::size_t i = whole; i < n; ++i) {
            add_to(_sums[0], Parts(values[i]));
        }
    }

    static void add_to(std::uint64_t (&sums)[exponents], Parts const& parts) noexcept {
        sums[parts.exponent] += parts.to_power();
    }

    /// Adds the sums and resets them. @return whether an element was not finite
    bool flush(ops::Inspection& result) noexcept {
        bool has_non_finite = false;
        for (std::size_t exponent = 0; exponent < exponents; ++exponent) {
            std::uint64_t sum = 0;
            for (auto& table : _sums) {
                sum += table[exponent];
                table[exponent] = 0;
            }
            if (exponent == non_finite) {
                has_non_finite = sum != 0;
            } else if (sum != 0) {
                result.add_significands(sum, digit_exponent(exponent));
            }
        }
        return has_non_finite;
    }

    template <StorageType T>
    static void count_non_finite(T const* values, std::size_t n, std::int64_t first_index,
                                 ops::Inspection& result) noexcept {
        for (std::size_t i = 0; i < n; ++i) {
            if (Parts(values[i]).exponent == non_finite) {
                result.add_non_finite(first_index + static_cast<std::int64_t>(i));
            }
        }
    }

    std::uint64_t _sums[tables][exponents] = {};
};

/// Adds a range to an `ops::Inspection`: the squares, and the non-finite elements. The sum is
/// exact, so each instruction set may add in its own way.
template <StorageType T>
struct InspectLoop {
    T const* values;
    std::size_t n;
    std::int64_t first_index;
    ops::Inspection* result;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        if constexpr (requires { typename F::template Squares<T>; }) {
            using Squares = typename F::template Squares<T>;
            Squares squares;
            std::size_t const whole = n - n % Squares::step;
            for (std::size_t begin = 0; begin < whole; begin += Squares::most) {
                std::size_t const count =
                    whole - begin < Squares::most ? whole - begin : Squares::most;
                if (!squares.add(values + begin, count, *result)) {
                    add_in_bins(begin, count);
                }
            }
            if (whole < n) {
                T rest[Squares::step] = {}; // zeros add nothing
                copy_elements(rest, values + whole, n - whole);
                if (!squares.add(rest, Squares::step, *result)) {
                    add_in_bins(whole, n - whole);
                }
            }
        } else {
            add_in_bins(0, n);
        }
    }

private:
    [[gnu::cold, gnu::noinline]] void add_in_bins(std::size_t begin,
                                                  std::size_t count) const noexcept {
        ExponentBins<2>::add(values + begin, count, first_index + static_cast<std::int64_t>(begin),
                             *result);
    }
};

} // namespace ZERO_NAMESPACE::host::detail
