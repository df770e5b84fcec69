#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "cast_loops.hpp"
#include "leaf_bins.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ZERO_NAMESPACE::host::detail {

template <StorageType T>
bool is_finite(T value) noexcept {
    return (std::bit_cast<std::uint32_t>(to_float(value)) & 0x7f800000U) != 0x7f800000U;
}

/// Adds a range to an `ops::Inspection`: sums of squares per leaf, and the non-finite elements.
template <StorageType T>
struct InspectLoop {
    static constexpr std::size_t group =
        4 * ops::leaf_elements; ///< elements that are summed at once
    static constexpr std::size_t chunk =
        LeafBins::capacity / 4 * group;            ///< elements between two flushes of the bins
    static constexpr std::size_t few = 64 * group; ///< below this, bins cost more than they save

    T const* values;
    std::size_t n;
    std::int64_t first_index;
    ops::Inspection* result;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        std::size_t const whole = n - n % group;
        if (whole < few) {
            add_groups<F>(0, whole, *result);
        } else {
            LeafBins bins;
            for (std::size_t begin = 0; begin < whole; begin += chunk) {
                add_chunk<F>(begin, whole - begin < chunk ? whole : begin + chunk, bins);
                bins.flush(*result);
            }
        }
        if (whole < n) {
            T rest[group] = {}; // a leaf of zeros adds nothing
            copy_elements(rest, values + whole, n - whole);
            add_group<F>(rest, first_index + static_cast<std::int64_t>(whole), *result);
        }
    }

private:
    template <class F>
    [[gnu::always_inline]] void add_chunk(std::size_t begin, std::size_t end,
                                          LeafBins& bins) const noexcept {
        if constexpr (requires { F::exact_squares(values); }) {
            for (; end - begin >= F::exact_elements; begin += F::exact_elements) {
                double const sum = F::exact_squares(values + begin);
                if (sum == sum) { // then all leaves are exact as well, and this is their sum
                    bins.add_leaf(sum);
                } else {
                    add_groups<F>(begin, begin + F::exact_elements, bins);
                }
            }
        }
        add_groups<F>(begin, end, bins);
    }

    template <class F, class Sums>
    [[gnu::always_inline]] void add_groups(std::size_t begin, std::size_t end,
                                           Sums& exact) const noexcept {
        for (std::size_t i = begin; i < end; i += group) {
            add_group<F>(values + i, first_index + static_cast<std::int64_t>(i), exact);
        }
    }

    template <class F, class Sums>
    [[gnu::always_inline]] void add_group(T const* from, std::int64_t index,
                                          Sums& exact) const noexcept {
        double sums[4];
        F::leaf_sums(from, sums);
        // Sums of squares are not negative. Their sum is finite exactly if each of them is finite,
        // because 256 squares below 2^256 do not overflow.
        if ((sums[0] + sums[1]) + (sums[2] + sums[3]) < std::numeric_limits<double>::infinity()) {
            exact.add_leaf(sums[0]);
            exact.add_leaf(sums[1]);
            exact.add_leaf(sums[2]);
            exact.add_leaf(sums[3]);
        } else {
            add_not_finite<F>(from, index);
        }
    }

    /// Counts the non-finite elements and adds the others, with zeros in the gaps.
    template <class F>
    [[gnu::cold, gnu::noinline]] void add_not_finite(T const* from,
                                                     std::int64_t index) const noexcept {
        T finite[group];
        for (std::size_t i = 0; i < group; ++i) {
            bool const good = is_finite(from[i]);
            finite[i] = good ? from[i] : T{};
            if (!good) {
                result->add_non_finite(index + static_cast<std::int64_t>(i));
            }
        }
        double sums[4];
        F::leaf_sums(finite, sums);
        for (double const leaf : sums) {
            result->add_leaf(leaf);
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail
