#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/norm.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// Adds the magnitudes to a maximum norm.
template <StorageType T>
void find_largest(T const* values, std::size_t n, ops::NormSum& result) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
        result.add_magnitude(to_float(values[i]));
    }
}

} // namespace ZERO_NAMESPACE::host::detail
