#pragma once

#include "cast_loops.hpp"

#include <cstddef>
#include <cstdint>

namespace zero::host::detail {

template <StorageType T>
bool is_finite(T value) noexcept {
    return (std::bit_cast<std::uint32_t>(to_float(value)) & 0x7f800000U) != 0x7f800000U;
}

template <StorageType T>
struct InspectLoop {
    T const* values;
    std::size_t n;
    std::int64_t first_index;
    ops::Inspection* result;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        constexpr std::size_t group = 4 * ops::leaf_elements;
        T const* const from = values;
        std::size_t const whole = n - n % group;
        double sums[4];
        for (std::size_t i = 0; i < whole; i += group) {
            F::leaf_sums(from + i, sums);
            add<F>(from + i, sums, first_index + static_cast<std::int64_t>(i));
        }
        if (whole < n) {
            T rest[group] = {}; // a leaf of zeros adds nothing
            copy_elements(rest, from + whole, n - whole);
            F::leaf_sums(rest, sums);
            add<F>(rest, sums, first_index + static_cast<std::int64_t>(whole));
        }
    }

private:
    template <class F>
    [[gnu::always_inline]] void add(T const* group, double const (&sums)[4], std::int64_t index) const noexcept {
        // Sums of squares are not negative, and the sum of all is finite exactly if each is: 256 squares below 2^256 do not overflow.
        double const sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        if (sum < std::numeric_limits<double>::infinity()) {
            for (double const leaf : sums) {
                result->add_leaf(leaf);
            }
        } else {
            add_non_finite<F>(group, index);
        }
    }

    /// Counts what is not finite and adds the rest, with zeros in the gaps.
    template <class F>
    __attribute__((cold)) void add_non_finite(T const* group, std::int64_t index) const noexcept {
        T finite[4 * ops::leaf_elements];
        for (std::size_t i = 0; i < 4 * ops::leaf_elements; ++i) {
            bool const good = is_finite(group[i]);
            finite[i] = good ? group[i] : T{};
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

} // namespace zero::host::detail
