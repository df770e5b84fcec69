#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/norm.hpp"
#include "inspect_loop.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// Adds the sums of |x| per leaf, in the order that `ops::Inspection` documents. A plain loop:
/// norms other than the l2 norm are for logging, not for each step.
template <StorageType T>
void add_magnitudes(T const* values, std::size_t n, std::int64_t first_index,
                    ops::Inspection& result) noexcept {
    for (std::size_t begin = 0; begin < n; begin += ops::leaf_elements) {
        std::size_t const end = n - begin < ops::leaf_elements ? n : begin + ops::leaf_elements;
        double lane[8] = {};
        for (std::size_t i = begin; i < end; ++i) {
            if (is_finite(values[i])) {
                lane[i % 8] += static_cast<double>(__builtin_fabsf(to_float(values[i])));
            } else {
                result.add_non_finite(first_index + static_cast<std::int64_t>(i));
            }
        }
        result.add_leaf(((lane[0] + lane[4]) + (lane[1] + lane[5]))
                        + ((lane[2] + lane[6]) + (lane[3] + lane[7])));
    }
}

/// Adds the magnitudes to a maximum norm.
template <StorageType T>
void find_largest(T const* values, std::size_t n, ops::NormSum& result) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
        result.add_magnitude(to_float(values[i]));
    }
}

} // namespace ZERO_NAMESPACE::host::detail
