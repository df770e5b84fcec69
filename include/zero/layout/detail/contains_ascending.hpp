#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns whether ascending numbers contain a value. O(log n).
[[nodiscard]] constexpr bool contains_ascending(std::span<std::size_t const> numbers,
                                                std::size_t value) noexcept {
    std::size_t first = 0; // the value is not before it
    for (std::size_t left = numbers.size(); left > 1;) {
        std::size_t const half = left / 2;
        first += numbers[first + half] <= value ? half : 0;
        left -= half;
    }
    return first < numbers.size() && numbers[first] == value;
}

} // namespace ZERO_NAMESPACE::detail
