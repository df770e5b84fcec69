#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/norm.hpp"
#include "../../ops/number.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// Adds the number of zeros of a range to `count`. Used by `host::count_zeros`.
template <StorageType T>
struct CountLoop {
    T const* values;
    std::size_t n;
    std::int64_t* count;

    /// The lanes only choose the instruction set: the compiler makes vectors of a fixed length.
    template <class>
    [[gnu::always_inline]] void operator()() const noexcept {
        constexpr std::size_t step = 128;
        std::int64_t zeros = 0;
        std::size_t const whole = n - n % step;
        for (std::size_t begin = 0; begin < whole; begin += step) {
            std::uint32_t some = 0;
            for (std::size_t i = 0; i < step; ++i) {
                some += ops::is_zero(values[begin + i]) ? 1U : 0U;
            }
            zeros += some;
        }
        for (std::size_t i = whole; i < n; ++i) {
            zeros += ops::is_zero(values[i]) ? 1 : 0;
        }
        *count += zeros;
    }
};

/// Adds the magnitudes to a maximum norm.
template <StorageType T>
void find_largest(T const* values, std::size_t n, ops::NormSum& result) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
        result.add_magnitude(to_float(values[i]));
    }
}

} // namespace ZERO_NAMESPACE::host::detail
