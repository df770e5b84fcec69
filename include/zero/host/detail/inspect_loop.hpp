#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/exact_sum.hpp"
#include "cast_loops.hpp"
#include "exponent_bins.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

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
