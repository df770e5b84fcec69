#pragma once

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/ops/exact_sum.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace zero::test {

using ops::Inspection;

/// Returns whether two sums are equal as integers, even with pending carries between digits: the
/// difference is exactly zero.
inline bool same(Inspection const& a, Inspection const& b) {
    Inspection difference = a;
    for (std::size_t i = 0; i < Inspection::count; ++i) {
        difference.sums[i] -= b.sums[i];
    }
    return difference.sum_of_squares() == 0.0 && difference.non_finite_count() == 0
           && a.first_non_finite == b.first_non_finite && a.sum_of_squares() == b.sum_of_squares();
}

/// Computes the sum by its definition: every square is added as an integer.
template <class T>
Inspection by_definition(T const* values, std::size_t n, std::int64_t first_index) {
    Inspection result;
    for (std::size_t i = 0; i < n; ++i) {
        auto const x = static_cast<double>(to_float(values[i]));
        if (std::isfinite(x)) {
            result.add(x * x); // exact in double
        } else {
            result.add_non_finite(first_index + static_cast<std::int64_t>(i));
        }
    }
    return result;
}

} // namespace zero::test
